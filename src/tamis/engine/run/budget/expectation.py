"""The forecast of a run when it starts, and the update of the machine profile when it ends.

The numbers come from forecast/prediction.py; here they are gathered: conditions from the settings, earlier runs from
the profile, and the shipped table where there are none.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence

from tamis.engine.job import Job
from tamis.engine.ledger import Ledger
from tamis.engine.run.budget.outcome import Outcome
from tamis.engine.run.budget.shares import BudgetShares
from tamis.engine.run.inputs import Inputs
from tamis.engine.schema import StageDescription
from tamis.engine.supervisor.state import Config
from tamis.engine.units import PieceKind
from tamis.forecast import shipped_table
from tamis.forecast.experience import Experience, compared, models_of
from tamis.forecast.prediction import Conditions, RunMeasurement
from tamis.memory.predictor import Predictor


class Expectation(Experience):
    """One run's prediction, from the machine profile at its start to what is remembered at its end."""

    def __init__(
        self,
        job: Job,
        stages: Sequence[StageDescription],
        outcome: Outcome,
        *,
        started_s: float,
        is_usual: bool,
        is_part: bool,
    ) -> None:
        """Record what the run is expected to take.

        `started_s`: on the monotonic clock, without the time that compiling took, which happens once (the run is not a
        typical one then: nothing is learned of its time and memory).
        """
        super().__init__(profile_key(stages))
        self.job, self.stages, self.outcome = job, stages, outcome
        self.from_profile: list[bool] = []
        self._conditions: Conditions | None = None
        self._measurement: RunMeasurement | None = None
        self._before = (0, 0, 0)
        self._started_s, self._is_usual, self._is_part = started_s, is_usual, is_part

    def models(self, max_partition_bytes: int) -> list[Predictor]:
        """Return one predictor per segment, as left by earlier runs, or new."""
        predictors, self.from_profile = models_of(self.profile, len(self.job.segments), max_partition_bytes)
        return predictors

    @property
    def seconds_per_byte(self) -> float:
        """Seconds per byte of one worker in all segments, by the last run that read anything; 0 if there was none."""
        return next(
            (m.busy_s / m.conditions.decoded_bytes for m in reversed(self.past) if m.conditions.decoded_bytes), 0.0
        )

    def begin(
        self,
        inputs: Inputs,
        config: Config,
        shares: BudgetShares,
        predictors: list[Predictor],
        passes: int,
        before: Ledger,
    ) -> None:
        """Make the prediction, once everything is known and before any work is done.

        `before`: work done by earlier attempts.
        """
        self._before = (before.read_bytes, before.written_bytes, before.records.n)
        self._conditions = conditions(self.job, inputs, config, shares, self.past, passes, before.read_bytes)
        s_per_byte = shipped_table.seconds_per_byte(stage_names(self.stages))
        self.expect(
            self._conditions, self.forecast(self._conditions, predictors, s_per_byte, learned=any(self.from_profile))
        )

    def end(self, peak_bytes: int, total: Ledger) -> None:
        """Record what the run took, after all work is done."""
        assert self._conditions is not None
        now = (total.read_bytes, total.written_bytes, total.records.n)
        read, written, n = (max(a - b, 0) for a, b in zip(now, self._before, strict=True))
        seconds, seen = time.monotonic() - self._started_s, self.outcome
        self._measurement = RunMeasurement(
            self._conditions._replace(decoded_bytes=read),
            peak_bytes,
            round(seconds, 3),
            round(seen.busy_s, 3),
            round(seen.cpu_s, 3),
            seen.scratch_bytes,
            written,
            n,
            seen.n_partitions,
            time.time(),
            any(self.from_profile),
            seen.largest_bytes,
            seen.peak_of_largest,
        )
        self.prediction = compared(self.prediction, self._measurement)

    def save(self, predictors: Sequence[Predictor]) -> None:
        """Keep what was learned, also by a run that failed."""
        measurement = (
            self._measurement
            if self._measurement is not None and self._measurement.conditions.decoded_bytes and self._is_usual
            else None
        )
        stages = [s.name[:200] for s in (self.job.reader, *self.job.stages, self.job.writer) if s is not None]
        segments = [p.to_dict() for p in predictors]
        about = {"name": self.job.name[:1000], "stages": stages[:1000], "segments": segments}
        self.keep(about, measurement, not self._is_part)


def profile_key(stages: Sequence[StageDescription]) -> str:
    """Return the key of a machine profile: the stages and their parameters, without input and helper code."""
    described = [{"stage": s.stage, "params": s.params, "source": s.source} for s in stages]
    return hashlib.blake2b(json.dumps(described, sort_keys=True).encode(), digest_size=8).hexdigest()


def stage_names(stages: Sequence[StageDescription]) -> list[str]:
    """Return full names of classes for the shipped table.

    Of a stage that only carries a filter or modifier, the name of that.
    """
    names = []
    for stage in stages:
        if stage.stage == "settings":
            continue
        inside = [v for k, v in stage.params.items() if k in ("filter_obj", "modifier_fn", "filters")]
        flat = [f for v in inside for f in (v if isinstance(v, list) else [v])]
        classes = [str(f["class"]).partition(":")[0] for f in flat if isinstance(f, dict) and "class" in f]
        names += classes or [stage.stage]
    return names


def conditions(
    job: Job,
    inputs: Inputs,
    config: Config,
    shares: BudgetShares,
    past: Sequence[RunMeasurement],
    passes: int,
    done_bytes: int,
) -> Conditions:
    """Return the conditions under which a run is predicted.

    `passes`: how often the input is read (once per sampling step). `done_bytes`: decoded, by an earlier attempt.
    """
    streams = any(kind is not PieceKind.BYTES for kind in inputs.kinds)
    stored = max(0, inputs.files.total_bytes) * passes
    decoded = shipped_table.decoded_bytes(inputs.files.paths, inputs.files.sizes) * passes
    ratios = [m.conditions.decoded_bytes / m.conditions.input_bytes for m in past if m.conditions.input_bytes]
    if ratios and streams:
        decoded = int(stored * ratios[-1])
    remaining = max(0, decoded - done_bytes)
    handed = streams or len(job.segments) > 1
    return Conditions(
        budget_bytes=config.budget_bytes,
        n_workers=shares.n_workers,
        fixed_bytes=shares.fixed_bytes,
        worker_bytes=shares.worker_bytes,
        cap_bytes=shares.cap_bytes,
        input_bytes=int(stored * remaining / decoded) if decoded else 0,
        decoded_bytes=remaining,
        max_block_bytes=config.largest_unit_bytes,
        handover_bytes=0 if not handed else decoded if config.mode == "batch" else config.queue_bytes,
    )
