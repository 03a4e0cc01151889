"""Loads experience with a pipeline or deduplication, forecasts a run from it, and stores what the run measured.

There are three sources, best first: earlier runs on this machine (its profile), a probe (`tamis plan` runs the stages
on a sample), the shipped table. The caller supplies conditions and measurements: a run
(engine/run/budget/expectation.py), a deduplication (dedup/expected.py) or `tamis plan`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tamis.errors import TamisError
from tamis.forecast import machine_profiles, ranges
from tamis.forecast.prediction import (
    MAX_RUNS,
    Conditions,
    Forecast,
    Prediction,
    RunMeasurement,
    SpanName,
    predict,
    runs_of,
)
from tamis.memory.predictor import Predictor

VERSION = 1


class Experience:
    """Knowledge about one pipeline: its profile, its earlier runs and the forecast made of them.

    `key`: of its profile. `kind`: which source. `prediction`: of the current run, as prediction.json holds it.
    """

    def __init__(self, key: str) -> None:
        self.key, self.profile = key, machine_profiles.load(key)
        self.past = runs_of(self.profile)
        self.kind = ranges.PROFILE if self.past else ranges.TABLE
        self.prediction: Prediction = {}

    def probed(self, took: RunMeasurement) -> None:
        """Use the measurements of a probe, unless there are earlier runs.

        A probe is more informative than the table; earlier runs are more informative than a probe.
        """
        if not self.past:
            self.past, self.kind = [took], ranges.PROBE

    @property
    def basis(self) -> str:
        if self.kind == ranges.PROFILE:
            runs = f"{len(self.past)} earlier run{'s' if len(self.past) > 1 else ''}"
            return f"machine profile: {runs} of this pipeline on this machine"
        source = "a probe" if self.kind == ranges.PROBE else "starting table"
        return f"{source}: this pipeline has not run on this machine yet"

    def forecast(self, conditions: Conditions, models: Sequence[Predictor], s_per_byte: float, **more: Any) -> Forecast:
        """Return the forecast. `more`: as `predict` takes it."""
        return predict(conditions, models, self.past, s_per_byte, kind=self.kind, ranges=ranges.load(), **more)

    def remember_planned(self, conditions: Conditions, forecast: Forecast) -> Prediction:
        """Return a forecast for this machine as `tamis plan` reports it.

        After a probe the forecast is stored, so that the run shows how far it was off.
        """
        figures = forecast.to_dict()
        if self.kind == ranges.PROBE:
            ranges.remember_planned(self.key, {"conditions": conditions._asdict(), **figures})
        return ranges.with_command(figures, ranges.load())

    def expect(self, conditions: Conditions, forecast: Forecast) -> None:
        """Record the prediction as a run begins."""
        self.prediction = {
            "version": VERSION,
            "basis": self.basis,
            "conditions": conditions._asdict(),
            **forecast.to_dict(),
        }

    def keep(self, about: Mapping[str, Any], took: RunMeasurement | None, is_whole: bool = True) -> None:
        """Store `about` and the last runs in the profile; None where there is nothing to learn.

        Of one that was a whole, and not a part of another run, it is learned how far its prediction, and that of a plan
        before it, were off.
        """
        runs = [m.to_dict() for m in ([*self.past, took] if took is not None else self.past)]
        machine_profiles.save(self.key, {**about, "runs": runs[-MAX_RUNS:]})
        if took is not None and is_whole:
            ranges.learn(self.prediction)
            if (plan := ranges.take_planned(self.key, took.conditions)) is not None:
                ranges.learn(compared(plan, took))


def compared(predicted: Prediction, took: RunMeasurement) -> Prediction:
    """Return the prediction with the measured value next to each interval, and whether the value is inside it."""
    values: dict[SpanName, float] = {
        "peak_bytes": took.peak_bytes,
        "scratch_bytes": took.scratch_bytes,
        "output_bytes": took.written_bytes,
        "seconds": round(took.seconds, 2),
    }
    figures = predicted.copy()
    for name, value in values.items():
        if (span := figures.get(name)) is not None:
            figures[name] = {**span, "measured": value, "inside": bool(span["low"] <= value <= span["high"])}
    expected_s = predicted.get("cpu_s")
    figures["cpu_s"] = {
        "expected": None if isinstance(expected_s, dict) else expected_s,
        "measured": round(took.cpu_s, 2),
    }
    return figures


def models_of(
    profile: Mapping[str, Any] | None, n_segments: int, max_block_bytes: int
) -> tuple[list[Predictor], list[bool]]:
    """Partition models as a profile keeps them, or new ones; and which come from the profile."""
    segments = (profile or {}).get("segments")
    models, from_profile = [], []
    for i in range(n_segments):
        data = segments[i] if isinstance(segments, list) and i < len(segments) else None
        try:
            model = Predictor.from_dict(data, max_block_bytes) if isinstance(data, dict) else None
        except TamisError:
            model = None
        models.append(model or Predictor(max_block_bytes))
        from_profile.append(model is not None)
    return models, from_profile
