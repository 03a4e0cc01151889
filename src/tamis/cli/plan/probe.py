"""A probe of `tamis plan`: stages that have not run here, tried on the beginning of some input files."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from tamis.cli.jobs.request import Request
from tamis.cli.plan.trial import Trial, copy_heads, run_trial, spread
from tamis.errors import TamisError
from tamis.forecast.prediction import Conditions, RunMeasurement
from tamis.formats.compression.codecs import SUFFIXES
from tamis.formats.input_files.listing import FileList
from tamis.memory.predictor import Predictor
from tamis.observe.points import UnitPoint
from tamis.observe.series import open_series

_FILES = 6
_ENOUGH = "1GB"  # of memory, where the budget itself is too small to try anything


@dataclass(frozen=True)
class Probe:
    """Costs of a run over the copies, and figures of the machine measured by it."""

    measured: RunMeasurement
    model: Predictor  # of what partitions take
    smallest_bytes: int
    fits: bool
    n_written: int
    ratios: dict[str, float]  # decoded bytes per stored byte, by kind of file


def probe(request: Request, files: FileList, n_bytes: int, budget_bytes: int, block_bytes: int) -> Probe:
    """Try the stages under the budget if that is possible at all. `block_bytes`: the largest that partitions may be."""
    with tempfile.TemporaryDirectory(prefix="tamis-plan-") as folder:
        heads = copy_heads(request.build()[0], _chosen(files), folder, n_bytes)
        ratios = defaultdict(list)
        for head in heads:
            ratios[kind_of(head["path"])].append(head["ratio"])
        copies, output = [head["copy"] for head in heads], os.path.join(folder, "out")
        how: dict[str, Any] = {"memory": budget_bytes, "quarantine_limit": "100%"}
        trial = run_trial(request, copies, output, how)
        fits = trial.status != "infeasible"
        if not fits:
            trial = run_trial(request, copies, output, how | {"memory": _ENOUGH, "fresh": True})
        if not trial.run_dir:
            failure = TamisError(trial.message)
            failure.exit_code = trial.exit_code
            raise failure
        with open(os.path.join(trial.run_dir, "settings.json"), "rb") as file:
            smallest = next(int(e["value"]) for e in json.load(file)["settings"] if e["name"] == "smallest budget")
        with open_series(Path(trial.run_dir)) as series:
            units = [u for u in series.units(100_000) if u.decoded_bytes > 0]
    model = Predictor(block_bytes)
    for u in units:
        model.observe(u.decoded_bytes, u.largest_record, u.peak_bytes)
    means = {kind: fmean(values) for kind, values in ratios.items()}
    fits = fits and budget_bytes >= smallest
    return Probe(_measured(trial, units), model, smallest, fits, trial.n_written, means)


def _measured(trial: Trial, units: Sequence[UnitPoint]) -> RunMeasurement:
    # The first partitions pay for set-up and cold caches; the faster half is what a long run sees.
    timed = sorted(units, key=lambda u: u.seconds / u.decoded_bytes)[: (len(units) + 1) // 2]
    rate = sum(u.seconds for u in timed) / max(sum(u.decoded_bytes for u in timed), 1)
    largest = max(((u.decoded_bytes, u.largest_record, u.peak_bytes) for u in units), default=(0, 0, 0))
    prediction, read, cpu = trial.prediction, trial.read_bytes, trial.prediction["cpu_s"]
    assert isinstance(cpu, dict), "the trial has ended"
    return RunMeasurement(
        Conditions(**prediction["conditions"])._replace(input_bytes=read, decoded_bytes=read),
        trial.peak_bytes,
        prediction["seconds"]["measured"],
        rate * read,
        cpu["measured"],
        int(prediction["scratch_bytes"]["measured"]),
        trial.written_bytes,
        trial.n_documents,
        len(units),
        time.time(),
        False,
        largest[0],
        largest[2],
    )


def _chosen(files: FileList) -> list[str]:
    """Choose a few files of every kind, spread evenly over the list."""
    by_kind = defaultdict(list)
    for path, size in zip(files.paths, files.sizes, strict=True):
        if size > 0:
            by_kind[kind_of(path)].append(path)
    per_kind = max(1, _FILES // max(len(by_kind), 1))
    return [path for paths in by_kind.values() for path in spread(paths, per_kind)]


def kind_of(path: str) -> str:
    """Return the kind of a file by its name: the format, with its compression.

    >>> kind_of("a/b.jsonl.gz"), kind_of("c.parquet")
    ('jsonl.gz', 'parquet')
    """
    name = os.path.basename(path).lower()
    return ".".join(name.split(".")[-2:]) if name.endswith(SUFFIXES) else name.rpartition(".")[2]
