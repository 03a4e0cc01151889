"""The probe of `tamis plan`: the beginning of some input files, and the recipe's stages run on them under the real budget."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tamis.cli.jobs.request import reader_formats, redirect
from tamis.cli.plan.apart import beginnings
from tamis.errors import BudgetError
from tamis.forecast.prediction import Conditions, Measured

if TYPE_CHECKING:
    from tamis.engine.run.run_result import RunResult
    from tamis.formats.input_files.listing import FileList
    from tamis.pipeline import Pipeline

_PROBED_FILES = 6
_HOW = (
    "memory", "workers", "blocksize", "max_record", "timeout", "mode", "quarantine_limit", "fresh", "gpu_memory", "gpu_overflow",
)  # fmt: skip
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
    heads = beginnings(_chosen(files), folder, n_bytes, reader_formats(pipeline))
    ratios: dict[str, list[float]] = {}
    for head in heads:
        ratios.setdefault(kind_of(head["path"]), []).append(head["ratio"])
    means = {kind: sum(found) / len(found) for kind, found in ratios.items()}
    return _run(pipeline, settings, [head["copy"] for head in heads], folder, budget, means)


def small_run(
    pipeline: Pipeline, settings: dict[str, Any], paths: list[str], output: str, progress: Any = None
) -> RunResult:
    """Run the stages of a recipe on other files into another folder, with those of its settings that say how, not on what.

    A `blocksize` of None: the measured peak decides, whatever the reader says.
    """
    from tamis.backends.local import LocalExecutor
    from tamis.stages.file_partitioning import FilePartitioningStage

    small = redirect(pipeline, paths, output)
    chosen = {k: v for k, v in settings.items() if k in _HOW and v is not None}
    if settings.get("blocksize", "") is None and isinstance(source := small.stages[0], FilePartitioningStage):
        source.blocksize = None
    if not small.build()[-1].is_sink_stage:
        chosen["run_dir"] = output
    return small.execute(LocalExecutor(progress=progress, report=False), count_caller=True, **chosen)


def _chosen(files: FileList) -> list[str]:
    """A few files of every kind, spread evenly over the list."""
    by_kind: dict[str, list[str]] = {}
    for path, size in zip(files.paths, files.sizes, strict=True):
        if size > 0:
            by_kind.setdefault(kind_of(path), []).append(path)
    per_kind = max(1, _PROBED_FILES // max(len(by_kind), 1))
    return [path for paths in by_kind.values() for path in spread(paths, per_kind)]


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
    from tamis.observe.series import open_series

    output = os.path.join(folder, "out")
    chosen: dict[str, Any] = {"quarantine_limit": "100%"}
    fits = True
    with _without_profiles():
        try:
            result = small_run(pipeline, {**settings, **chosen, "memory": budget}, heads, output)
        except BudgetError:
            fits = False
            chosen |= {"memory": _PROBE_MEMORY, "fresh": True}
            result = small_run(pipeline, {**settings, **chosen}, heads, output)
    with open(os.path.join(result.run_dir, "settings.json"), "rb") as file:
        notes = {e["name"]: e["value"] for e in json.load(file)["settings"]}
    with open_series(Path(result.run_dir)) as series:
        done = [u for u in series.units(100_000) if u.decoded_bytes > 0]
    units = [(u.decoded_bytes, u.largest_record, u.peak_bytes, u.seconds) for u in done]
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
