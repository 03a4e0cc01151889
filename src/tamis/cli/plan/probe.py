"""The probe of `tamis plan`: the beginning of some input files, and the recipe's stages run on them under the real budget."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tamis.cli.plan.trial import copied, small_run, spread
from tamis.errors import BudgetError
from tamis.forecast.prediction import Conditions, Measured
from tamis.memory.predictor import Predictor

if TYPE_CHECKING:
    from tamis.engine.run.run_result import RunResult
    from tamis.formats.input_files.listing import FileList
    from tamis.pipeline import Pipeline

_PROBED_FILES = 6
_PROBE_MEMORY = "1GB"  # where the budget itself is too small to try anything


@dataclass
class Probe:
    """What a run over the copies took, and what it found out about the machine."""

    measured: Measured
    model: Predictor  # of what partitions take
    smallest_bytes: int
    fits: bool
    n_written: int
    ratios: dict[str, float]  # decoded bytes per stored byte, by kind of file


def probe(
    pipeline: Pipeline, settings: dict[str, Any], files: FileList, n_bytes: int, folder: str, budget: int, block_bytes: int
) -> Probe:  # fmt: skip
    """Run the stages on the copies, under the budget if that is possible at all. `block_bytes`: the largest that partitions may be."""
    heads = copied(pipeline, _chosen(files), folder, n_bytes)
    ratios: dict[str, list[float]] = {}
    for head in heads:
        ratios.setdefault(kind_of(head["path"]), []).append(head["ratio"])
    copies, output, settings = [head["copy"] for head in heads], os.path.join(folder, "out"), {**settings, "quarantine_limit": "100%"}  # fmt: skip
    fits = True
    with _without_profiles():
        try:
            result = small_run(pipeline, {**settings, "memory": budget}, copies, output)
        except BudgetError:
            fits = False
            result = small_run(pipeline, {**settings, "memory": _PROBE_MEMORY, "fresh": True}, copies, output)
    with open(os.path.join(result.run_dir, "settings.json"), "rb") as file:
        smallest = next(int(e["value"]) for e in json.load(file)["settings"] if e["name"] == "smallest budget")
    means = {kind: sum(found) / len(found) for kind, found in ratios.items()}
    return Probe(*_took(result, block_bytes), smallest, fits and budget >= smallest, result.ledger.written.n, means)


def _took(result: RunResult, block_bytes: int) -> tuple[Measured, Predictor]:
    from tamis.observe.series import open_series

    model = Predictor(block_bytes)
    with open_series(Path(result.run_dir)) as series:
        units = [u for u in series.units(100_000) if u.decoded_bytes > 0]
    for u in units:
        model.observe(u.decoded_bytes, u.largest_record, u.peak_bytes)
    # The first partitions pay for set-up and cold caches; the faster half is what a long run sees.
    timed = sorted(units, key=lambda u: u.seconds / u.decoded_bytes)[: (len(units) + 1) // 2]
    rate = sum(u.seconds for u in timed) / max(sum(u.decoded_bytes for u in timed), 1)
    largest = max(((u.decoded_bytes, u.largest_record, u.peak_bytes) for u in units), default=(0, 0, 0))
    told, read = result.prediction, result.ledger.read_bytes
    asked = replace(Conditions(**told["conditions"]), input_bytes=read, decoded_bytes=read)
    return Measured(
        asked, result.peak_bytes, told["seconds"]["measured"], rate * read, told["cpu_s"]["measured"], told["scratch_bytes"]["measured"],
        result.ledger.written_bytes, result.ledger.records.n, len(units), time.time(), False, largest[0], largest[2],
    ), model  # fmt: skip


def _chosen(files: FileList) -> list[str]:
    """A few files of every kind, spread evenly over the list."""
    by_kind: dict[str, list[str]] = {}
    for path, size in zip(files.paths, files.sizes, strict=True):
        if size > 0:
            by_kind.setdefault(kind_of(path), []).append(path)
    per_kind = max(1, _PROBED_FILES // max(len(by_kind), 1))
    return [path for paths in by_kind.values() for path in spread(paths, per_kind)]


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
