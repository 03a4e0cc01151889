"""The probe of `tamis plan`: the beginning of some input files, and the recipe's stages run on them under the real budget."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tamis.cli.jobs.request import reader_formats, redirect
from tamis.errors import BudgetError, TamisError
from tamis.forecast.prediction import Conditions, Measured

if TYPE_CHECKING:
    from tamis.formats.input_files.listing import FileList
    from tamis.pipeline import Pipeline

_PROBED_FILES = 6
_PROBE_MEMORY = "1GB"  # where the budget itself is too small to try anything


@dataclass
class Probe:
    """What a run over the heads took, and what it found out about the machine. `units`: decoded, largest record, peak, seconds."""

    measured: Measured
    units: list[tuple[int, int, int, float]]
    smallest_bytes: int
    fits: bool
    n_written: int
    ratios: dict[str, float]  # decoded bytes per stored byte, by kind of file


def probe(
    pipeline: Pipeline, settings: dict[str, Any], files: FileList, n_bytes: int, folder: str, budget: int
) -> Probe:
    heads = copy_heads(files, folder, n_bytes, reader_formats(pipeline))
    usable = [h["head"] for h in heads if h.get("head")]
    if not usable:
        why = next((h["error"] for h in heads if "error" in h), "no record ends in the first MB of the files")
        raise TamisError(f"nothing to try the recipe on: {why}")
    ratios: dict[str, list[float]] = {}
    for head in heads:
        if "ratio" in head:
            ratios.setdefault(kind_of(head["path"]), []).append(head["ratio"])
    return _run(
        pipeline, settings, usable, folder, budget, {kind: sum(found) / len(found) for kind, found in ratios.items()}
    )


def copy_heads(files: FileList, folder: str, n_bytes: int, formats: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Heads of a few files of every kind, spread evenly over the list."""
    by_kind: dict[str, list[str]] = {}
    for path, size in zip(files.paths, files.sizes, strict=True):
        if size > 0:
            by_kind.setdefault(kind_of(path), []).append(path)
    per_kind = max(1, _PROBED_FILES // max(len(by_kind), 1))
    chosen = [path for paths in by_kind.values() for path in spread(paths, per_kind)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    asked = json.dumps({"paths": chosen, "folder": folder, "n_bytes": n_bytes, "formats": list(formats)})
    done = subprocess.run(
        [sys.executable, "-m", "tamis.cli.plan.first_megabytes"],
        input=asked,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise TamisError(f"the input files cannot be looked into: {done.stderr.strip().splitlines()[-1:]}")
    heads: list[dict[str, Any]] = json.loads(done.stdout)
    return heads


def spread(paths: Sequence[str], n: int) -> list[str]:
    """
    >>> spread(["a", "b", "c", "d", "e"], 2)
    ['a', 'c']
    """
    if len(paths) <= n:
        return list(paths)
    return [paths[i * len(paths) // n] for i in range(n)]


def kind_of(path: str) -> str:
    """
    >>> kind_of("a/b.jsonl.gz"), kind_of("c.parquet")
    ('jsonl.gz', 'parquet')
    """
    name = os.path.basename(path).lower()
    return ".".join(name.split(".")[-2:]) if name.endswith((".gz", ".zst", ".bz2", ".xz")) else name.rpartition(".")[2]


@contextmanager
def _without_profiles() -> Iterator[None]:
    """A few MB are no run to remember: what is measured here must not pass for experience later."""
    before = os.environ.get("TAMIS_PROFILES")
    os.environ["TAMIS_PROFILES"] = "off"
    try:
        yield
    finally:
        if before is None:
            del os.environ["TAMIS_PROFILES"]
        else:
            os.environ["TAMIS_PROFILES"] = before


def _run(
    pipeline: Pipeline, settings: dict[str, Any], heads: list[str], folder: str, budget: int, ratios: dict[str, float]
) -> Probe:
    """Run the stages on the heads, under the budget if that is possible at all."""
    from tamis.backends.local import LocalExecutor

    chosen = {
        k: v for k, v in settings.items() if k in ("memory", "workers", "blocksize", "max_record", "timeout", "mode")
    }
    chosen |= {"memory": budget, "quarantine_limit": "100%", "count_caller": True}
    output = os.path.join(folder, "out")
    if not pipeline.build()[-1].is_sink_stage:
        chosen["run_dir"] = output
    fits = True
    small = redirect(pipeline, heads, output)
    with _without_profiles():
        try:
            result = small.execute(LocalExecutor(report=False), **chosen)
        except BudgetError:
            fits = False
            result = small.execute(LocalExecutor(report=False), **{**chosen, "memory": _PROBE_MEMORY, "fresh": True})
    with open(os.path.join(result.run_dir, "settings.json"), "rb") as file:
        notes = {e["name"]: e["value"] for e in json.load(file)["settings"]}
    with closing(sqlite3.connect(os.path.join(result.run_dir, "run.sqlite"))) as db:
        rows = db.execute(
            "SELECT decoded_bytes, largest_record, peak_bytes, seconds FROM units WHERE decoded_bytes > 0 ORDER BY at"
        ).fetchall()
    units = [(int(a), int(b or 0), int(c or 0), float(d or 0)) for a, b, c, d in rows]
    smallest, n_workers = int(notes["smallest budget"]), int(notes["workers"])
    # The first partitions pay for set-up and cold caches; the faster half is what a long run sees.
    timed = sorted(units, key=lambda u: u[3] / u[0])[: (len(units) + 1) // 2]
    rate = sum(u[3] for u in timed) / max(sum(u[0] for u in timed), 1)
    read = result.ledger.read_bytes
    asked = Conditions(
        budget_bytes=result.budget_bytes, n_workers=n_workers, fixed_bytes=int(notes["fixed memory"]),
        worker_bytes=int(notes["worker memory at start"]), cap_bytes=max(0, int(notes["worker cap"])),
        input_bytes=read, decoded_bytes=read, max_block_bytes=int(notes["blocksize"]),
        handover_bytes=int(result.prediction["conditions"]["handover_bytes"]),
    )  # fmt: skip
    busy_s = rate * read
    largest = max(units, default=(0, 0, 0, 0.0))
    cpu_s = float(result.prediction["cpu_s"]["measured"])
    measured = Measured(
        asked, result.peak_bytes, float(result.prediction["seconds"]["measured"]), busy_s, cpu_s, int(result.prediction["scratch_bytes"]["measured"]),
        result.ledger.written_bytes, result.ledger.records.n, len(units), time.time(), False, largest[0], largest[2],
    )  # fmt: skip
    return Probe(measured, units, smallest, fits and budget >= smallest, result.ledger.written.n, ratios)
