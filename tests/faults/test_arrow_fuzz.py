"""Damaged Arrow files through whole runs, reading and writing: nothing crashes or hangs, and every record is counted.

Records of whole files come out exactly once. Of a damaged file, what is written and what is quarantined (by row, with
the file's name and a reason) adds up to what it had; or it is quarantined as a whole.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.errors import Incomplete
from tamis.stages.text.io.reader import DocumentReader
from tamis.stages.text.io.writer import JsonlWriter, ParquetWriter
from tests.support.run_dirs import run_dir_path

N = 40
BATCH = 15
EXTREMES = (0, 1, -1, 2**31 - 1, 2**31, 2**32, 2**40, 2**62, -(2**63), 835_868 * 10**12)
FORMS = [(how, codec) for how in ("file", "stream") for codec in (None, "zstd", "lz4")]
TAG = re.compile(r"<(\d+)>")


def arrow_file(number: int, rng: random.Random, is_plain: bool = False) -> bytes:
    """Make a file or stream of N records in three batches; each of three columns names its file."""
    how, codec = ("file", None) if is_plain else FORMS[number % len(FORMS)]
    texts = [f"<{number}> record {i} " + "word " * rng.randrange(9) for i in range(N)]
    columns: dict[str, Any] = {"text": texts, "id": [f"<{number}> {i}" for i in range(N)]}
    tags = pa.array([f"<{number}>"] * N)
    columns["tag"] = tags.dictionary_encode() if number % 2 else tags
    columns["n"] = pa.array([None if i % 7 == 3 else i for i in range(N)], pa.int32())
    columns["vector"] = [[0.5 * i] * (i % 3) for i in range(N)]
    table = pa.table(columns)
    sink = io.BytesIO()
    new = pa.ipc.new_stream if how == "stream" else pa.ipc.new_file
    with new(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as out:
        out.write_table(table, max_chunksize=BATCH)
    return sink.getvalue()


def damaged(data: bytes, rng: random.Random) -> bytes:
    """One change of a kind that disks, networks and programs make.

    In half of the cases in the parts that are not values.
    """
    made, kind = bytearray(data), rng.randrange(7)
    at = rng.randrange(len(data))
    if rng.random() < 0.5:  # messages begin with a mark; the footer ends the file
        marks = [m.start() for m in re.finditer(b"\xff\xff\xff\xff", data)] + [max(0, len(data) - 400)]
        at = min(len(data) - 1, rng.choice(marks) + rng.randrange(300))
    if kind == 0:
        made[at] ^= 1 << rng.randrange(8)
    elif kind == 1 and at + 8 <= len(made):
        struct.pack_into("<q", made, at // 8 * 8, rng.choice(EXTREMES))
    elif kind == 2 and at + 4 <= len(made):
        struct.pack_into("<i", made, at // 4 * 4, rng.choice((0, 1, -1, 2**31 - 1, rng.randrange(2**31))))
    elif kind == 3:
        del made[at : min(at + rng.choice((1, 8, 64)), len(data) - 16)]
    elif kind == 4:
        made[at:at] = made[at : at + rng.choice((8, 64, 256))]
    elif kind == 5:
        n = rng.choice((8, 64))
        made[at : at + n] = bytes(len(made[at : at + n]))
    else:  # between two messages of a stream it could not be noticed: the mark at the end may be left out
        del made[at // 8 * 8 + 3 :]
    return bytes(made)


def tag_of(row: dict[str, Any]) -> int | None:
    """Return the file that most of the values of a record name."""
    tags = Counter(m[1] for value in row.values() if isinstance(value, str) and (m := TAG.search(value)))
    return int(tags.most_common(1)[0][0]) if tags else None


def rows_of(out: Path) -> list[dict[str, Any]]:
    rows = [row for p in sorted(out.glob("*.parquet")) for row in pq.read_table(p).to_pylist()]
    return rows + [json.loads(line) for p in sorted(out.glob("*.jsonl")) for line in p.read_text().splitlines()]


def quarantined(out: Path) -> tuple[Counter[int], set[int]]:
    """Rows in quarantine by the number of their file, and the files that are there as a whole."""
    rows: Counter[int] = Counter()
    whole = set()
    for path in (run_dir_path(out) / "quarantine").glob("*.jsonl"):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            number = int(Path(entry["file"]).stem)
            assert entry["reason"]
            if entry.get("n", 1) == 0:
                whole.add(number)
            rows[number] += entry.get("n", 1)
    return rows, whole


def check(folder: Path, seed: int, n_damaged: int, writer: Any, executor: Any = None, **settings: Any) -> None:
    """Run a copy over whole files and damaged ones, and count."""
    rng = random.Random(seed)
    (folder / "in").mkdir(parents=True)
    whole = {0, n_damaged + 1}
    for number in range(n_damaged + 2):
        data = arrow_file(number, rng, number in whole)
        (folder / "in" / f"{number:04d}.arrow").write_bytes(data if number in whole else damaged(data, rng))
    pipeline = Pipeline("fuzz", stages=[DocumentReader(str(folder / "in")), writer(str(folder / "out"))])
    with contextlib.suppress(Incomplete):  # above the limit: its exit code is looked at below
        pipeline.run(executor, **settings)
    result = pipeline.last_result
    assert result is not None, f"seed {seed}"
    ledger = result.ledger
    assert result.status == "finished"
    assert ledger.records.n == ledger.written.n + ledger.quarantined.n

    rows, (by_row, as_whole) = rows_of(folder / "out"), quarantined(folder / "out")
    assert len(rows) == ledger.written.n
    assert sum(by_row.values()) == ledger.quarantined.n
    assert bool(result.exit_code) == bool(by_row.total() or as_whole)
    written = Counter(tag_of(row) for row in rows)
    for number in whole:
        ids = [row["id"] for row in rows if str(row.get("tag")) == f"<{number}>"]
        assert sorted(ids) == sorted(f"<{number}> {i}" for i in range(N)), f"seed {seed}: file {number}"
    missing = {number: N - written[number] - by_row[number] for number in set(range(1, n_damaged + 1)) - as_whole}
    told = f"seed {seed}: {written[None]} records name no file; missing: { {k: n for k, n in missing.items() if n} }"
    assert min(missing.values(), default=0) >= 0, told
    assert sum(missing.values()) == written[None], told
    for number in as_whole:
        assert written[number] + by_row[number] <= N


@pytest.mark.filterwarnings("ignore:fuzz. .* in quarantine")
@pytest.mark.parametrize("writer", [JsonlWriter, ParquetWriter])
def test_damaged_arrow_files_are_counted(tmp_path: Path, writer: Any) -> None:
    for seed in range(3):
        check(tmp_path / str(seed), seed, 16, writer, InProcessExecutor(), memory="500MB")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore:fuzz. .* in quarantine")
@pytest.mark.parametrize("writer", [JsonlWriter, ParquetWriter])
def test_many_damaged_arrow_files_are_counted(tmp_path: Path, writer: Any) -> None:
    for seed in range(100, 130):
        check(tmp_path / str(seed), seed, 40, writer, memory="400MB", workers=2)
