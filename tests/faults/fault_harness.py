"""What the fault tests share: inputs, running a pipeline, reading back what it wrote, quarantined and noted."""

from __future__ import annotations

import base64
import bz2
import functools
import gzip
import json
import lzma
import os
import sqlite3
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import tamis
from tamis import InProcessExecutor, LocalExecutor, Pipeline
from tamis.engine.run.run_result import RunResult
from tamis.stages.text.io.reader import DocumentReader
from tamis.stages.text.io.writer import JsonlWriter, ParquetWriter
from tests.support.run_dirs import run_dir_path

SOURCE = str(Path(tamis.__file__).resolve().parents[1])
ROOT = str(Path(__file__).resolve().parents[2])

# A run to be killed or disturbed: a plain script without a __main__ guard, as users write them.
TARGET = """
import sys

from tests.faults.fault_stages import AddLength, DropOdd, Slow

from tamis import LocalExecutor, Pipeline
from tamis.stages.text.io.reader import DocumentReader
from tamis.stages.text.io.writer import JsonlWriter

source, output, memory, workers, blocksize, seconds = sys.argv[1:]
pipeline = Pipeline("killed")
pipeline.add_stage(DocumentReader(source, blocksize=blocksize)).add_stage(AddLength()).add_stage(DropOdd())
pipeline.add_stage(Slow(float(seconds))).add_stage(JsonlWriter(output))
pipeline.run(LocalExecutor(), memory=memory, workers=int(workers))
"""


def target(
    source: Path, output: Path, memory: str, workers: str, blocksize: str, seconds_per_batch: float
) -> list[str]:
    """Return the command that runs TARGET."""
    return [sys.executable, "-c", TARGET, str(source), str(output), memory, workers, blocksize, str(seconds_per_batch)]


def env(**more: str) -> dict[str, str]:
    """Return the environment of a script that uses the package and the stages of this folder."""
    paths = [SOURCE, ROOT, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p), **more}


N_WORDS = 99_991  # a prime: steps of any size lead through all words


@functools.cache
def _words() -> tuple[list[str], int]:
    """Return all words in the order in which documents have them, and the step from one document to the next."""
    step = 104_729
    return [f"w{k * step % N_WORDS}" for k in range(2 * N_WORDS)], 7_919 * pow(step, -1, N_WORDS)


def document(i: int, n_words: int = 12) -> bytes:
    """Return a record that is not formatted as a JSON library would, so that re-encoding shows."""
    words, step = _words()
    first, n = i * step % N_WORDS, n_words + i % 7
    text = " ".join(words[first : first + n])
    return b'{ "id":%d,  "text" : "%s \\u00e9 %d", "n":1.50e1 }' % (i, text.encode(), i)


def documents(n: int, first: int = 0, n_words: int = 12) -> list[bytes]:
    return [document(i, n_words) for i in range(first, first + n)]


def write_lines(path: Path, lines: Iterable[bytes], end: bytes = b"\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(line + end for line in lines))
    return path


@functools.lru_cache(maxsize=16)
def compress(data: bytes, codec: str) -> bytes:
    if codec == "gz":
        return gzip.compress(data, 6, mtime=0)
    if codec == "bz2":
        return bz2.compress(data)
    if codec == "xz":
        return lzma.compress(data)
    import zstandard

    return zstandard.ZstdCompressor(level=3).compress(data)


def make_pipeline(
    source: Any,
    output: Path,
    stages: Sequence[Any] = (),
    *,
    blocksize: Any = None,
    fields: Sequence[str] | None = None,
    files_per_partition: int | None = None,
    parquet: bool = False,
    **writer: Any,
) -> Pipeline:
    paths = [os.fspath(p) for p in source] if isinstance(source, (list, tuple)) else os.fspath(source)
    reader = DocumentReader(paths, blocksize=blocksize, fields=fields, files_per_partition=files_per_partition)
    sink = ParquetWriter if parquet else JsonlWriter
    return Pipeline("faults", stages=[reader, *stages, sink(os.fspath(output), **writer)])


def execute(
    source: Any,
    output: Path,
    stages: Sequence[Any] = (),
    *,
    local: bool = True,
    settings: dict[str, Any] | None = None,
    **how: Any,
) -> RunResult:
    """Run and give the whole result, without judging it. Real worker processes unless `local` is false."""
    executor = LocalExecutor() if local else InProcessExecutor()
    return make_pipeline(source, output, stages, **how).execute(
        executor, **{"memory": "512MB", "workers": 2, **(settings or {})}
    )


def outputs(output: Path) -> list[Path]:
    return sorted(p for p in output.iterdir() if p.is_file())


def lines_of(output: Path) -> list[bytes]:
    """All lines written, in the order of file names."""
    return [line for path in outputs(output) for line in path.read_bytes().splitlines()]


def ids_of(output: Path) -> list[int]:
    return [json.loads(line)["id"] for line in lines_of(output)]


def manifest(output: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run_dir_path(output) / "manifest.json").read_bytes())
    return found


def content_hash(output: Path) -> str:
    return str(manifest(output)["content_hash"])


def quarantine(output: Path) -> list[dict[str, Any]]:
    """Quarantine entries, each with its raw bytes under "bytes" (None where there are none)."""
    entries = []
    for path in sorted((run_dir_path(output) / "quarantine").glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            entry = json.loads(line)
            entry["bytes"] = None
            if "raw_file" in entry:
                entry["bytes"] = path.with_name(f"{path.name.removesuffix('.jsonl')}.{entry['raw_file']}").read_bytes()
            elif "raw" in entry:
                entry["bytes"] = entry["raw"].encode()
            elif "raw_base64" in entry:
                entry["bytes"] = base64.b64decode(entry["raw_base64"])
            entries.append(entry)
    return entries


def events(output: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return the events of the run database, in order."""
    db = sqlite3.connect(run_dir_path(output) / "run.sqlite")
    try:
        return [(kind, json.loads(data)) for kind, data in db.execute("select kind, data from events order by rowid")]
    finally:
        db.close()


def assert_conserved(result: RunResult) -> None:
    """Every record of the input ended in exactly one place."""
    ledger = result.ledger
    assert ledger.problems() == []
    assert ledger.written.n == ledger.content.n
