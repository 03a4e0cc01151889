"""Forecasts: literal conditions, literal intervals."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from tamis.errors import UsageError
from tamis.forecast import prediction as forecast
from tamis.forecast.fitting import PEAK, LinearModel, spread, student
from tamis.forecast.prediction import (
    MAX_RUNS,
    Conditions,
    Interval,
    RunMeasurement,
    raw_peak,
    raw_scratch,
    raw_seconds,
    runs_of,
)
from tamis.memory.predictor import Predictor

MB = 10**6
ASKED = Conditions(1000 * MB, 2, 150 * MB, 20 * MB, 300 * MB, 500 * MB, 500 * MB, 32 * MB)


class AsModelled:
    """Ranges as wide as the model itself says."""

    def reach(self, figure: str, kind: str) -> tuple[float, float, float]:
        return -1.0, 0.0, 1.0


def predict(*given: Any, **more: Any) -> forecast.Forecast:
    return forecast.predict(*given, ranges=AsModelled(), **more)


def taught() -> Predictor:
    """Return a model of exactly 10 MB + 2 bytes per decoded byte."""
    model = Predictor(32 * MB)
    for size in (1, 2, 4, 8, 16, 32) * 10:
        model.observe(size * MB, 0, 10 * MB + 2 * size * MB)
    return model


def took(peak_mb: float, seconds: float = 11.4, conditions: Conditions = ASKED, **more: Any) -> RunMeasurement:
    return RunMeasurement(conditions, int(peak_mb * MB), seconds, 20.0, 18.0, 0, 250 * MB, 1000, 16, 1.0, True, **more)


def test_the_raw_model() -> None:
    peak, block = raw_peak(ASKED, [taught()])
    assert block == 32 * MB
    assert peak == pytest.approx((150 + 2 * (20 + 10 + 64)) * MB, rel=0.02)
    times = LinearModel(1.4, 20 / (500 * MB))
    assert raw_seconds(ASKED, times) == pytest.approx(11.4)
    assert raw_seconds(ASKED, times, nodes=10) == pytest.approx(2.4)
    assert raw_seconds(ASKED._replace(decoded_bytes=16 * MB), times) == pytest.approx(2.04)  # one partition: one worker
    assert raw_scratch(ASKED) == 0
    assert raw_scratch(ASKED._replace(handover_bytes=256 * MB)) == 256 * MB


def test_little_input_makes_small_partitions() -> None:
    small = ASKED._replace(decoded_bytes=4 * MB)
    peak, block = raw_peak(small, [taught()])
    assert block == 4 * MB
    assert peak == pytest.approx((150 + 20 + 10 + 8) * MB, rel=0.02)  # it all goes to one worker
    peak, block = raw_peak(small, [taught()], learned=False)
    assert block == (2 * MB + (1 << 20)) // 2  # partitions that double have not come far


def test_without_experience_the_interval_is_wide() -> None:
    found = predict(ASKED, [taught()], [], 20 / (500 * MB))
    assert found.n_runs == 0
    assert found.peak_bytes.high / found.peak_bytes.expected == pytest.approx(math.exp(0.65), rel=0.01)
    assert found.seconds.high / found.seconds.low > 20
    assert (found.scratch_bytes.low, found.scratch_bytes.high) == (0, 0)
    assert (found.output_bytes.low, found.output_bytes.high) == (0, 600 * MB)
    assert found.n_partitions == 16


def test_equal_runs_narrow_it_around_what_they_took() -> None:
    one = predict(ASKED, [taught()], [took(250)], 1.0).peak_bytes
    two = predict(ASKED, [taught()], [took(250)] * 2, 1.0).peak_bytes
    ten = predict(ASKED, [taught()], [took(250)] * 10, 1.0).peak_bytes
    assert all(i.holds(250 * MB) for i in (one, two, ten))
    widths = [(i.high - i.low) / i.expected for i in (one, two, ten)]
    assert widths == sorted(widths, reverse=True)
    assert widths[1] < 0.35
    assert widths[2] < 0.2
    assert ten.expected == pytest.approx(250 * MB, rel=0.01)


def test_runs_that_differ_keep_it_wide() -> None:
    calm = predict(ASKED, [taught()], [took(250), took(250), took(250)], 1.0).peak_bytes
    wild = predict(ASKED, [taught()], [took(180), took(250), took(350)], 1.0).peak_bytes
    assert wild.high - wild.low > 2 * (calm.high - calm.low)
    assert wild.holds(180 * MB)
    assert wild.holds(350 * MB)


def test_no_peak_is_predicted_above_the_budget() -> None:
    asked = ASKED._replace(budget_bytes=300 * MB, cap_bytes=40 * MB)
    found = predict(asked, [taught()], [took(290, conditions=asked)], 1.0).peak_bytes
    assert found.high == 300 * MB


def test_a_run_under_other_conditions_counts_less() -> None:
    far = ASKED._replace(budget_bytes=16_000 * MB, decoded_bytes=5 * MB)
    near = predict(ASKED, [taught()], [took(250)], 1.0).peak_bytes
    wide = predict(ASKED, [taught()], [took(250, conditions=far)], 1.0).peak_bytes
    assert wide.high / wide.low > near.high / near.low


def test_time_follows_the_data_and_not_the_start() -> None:
    # 20 worker seconds on 2 workers and 4 s of start-up: ten times the data takes 100 s and the same start.
    past = [took(250, seconds=14.0)] * 3
    found = predict(ASKED._replace(decoded_bytes=5000 * MB), [taught()], past, 1.0)
    assert 100 < found.seconds.expected < 130
    assert found.cpu_s == pytest.approx(180)


def test_another_machine_widens_the_time_only() -> None:
    past = [took(250)] * 5
    here = predict(ASKED, [taught()], past, 1.0)
    there = predict(ASKED, [taught()], past, 1.0, elsewhere=True)
    assert there.seconds.high > 1.3 * here.seconds.high
    assert there.peak_bytes == here.peak_bytes


def test_scratch_is_learned_where_blocks_are_passed_on() -> None:
    asked = ASKED._replace(handover_bytes=256 * MB)
    assert predict(asked, [taught()], [], 1.0).scratch_bytes == Interval(0.0, 128 * MB, 256 * MB)
    past = [took(250, conditions=asked)._replace(scratch_bytes=40 * MB)] * 4
    found = predict(asked, [taught()], past, 1.0).scratch_bytes
    assert found.holds(40 * MB)
    assert found.high < 100 * MB


def test_the_interval_holds_as_often_as_it_says() -> None:
    # Runs of one kind, peaks scattered by 6 %: after five of them nine in ten of the next lie inside, give or take.
    rng = random.Random(7)
    held = 0
    for _ in range(400):
        ratios = [rng.gauss(0.4, 0.06) for _ in range(6)]
        centre, half = spread(ratios[:5], [1.0] * 5, PEAK)
        held += abs(ratios[5] - centre) <= half
    assert 0.86 <= held / 400 <= 0.97


def test_student() -> None:
    assert [round(student(n), 2) for n in (4, 5, 8, 20)] == [2.13, 2.01, 1.86, 1.72]


def test_a_run_is_kept_as_plain_values() -> None:
    run = took(250)
    assert RunMeasurement.from_dict(run.to_dict()) == run
    assert runs_of({"runs": [run.to_dict()] * (MAX_RUNS + 5)}) == [run] * MAX_RUNS


@pytest.mark.parametrize(
    "damage",
    [
        {"peak_bytes": -1},
        {"peak_bytes": "250"},
        {"seconds": float("nan")},
        {"seconds": float("inf")},
        {"busy_s": None},
        {"cpu_s": True},
        {"conditions": []},
        {"conditions": {}},
        {"n_documents": 1e30},
    ],
)
def test_damaged_runs_are_refused_and_left_out(damage: dict[str, Any]) -> None:
    bad = {**took(250).to_dict(), **damage}
    with pytest.raises(UsageError, match="machine profile"):
        RunMeasurement.from_dict(bad)
    assert runs_of({"runs": [bad, took(260).to_dict(), 7]}) == [took(260)]


def test_profiles_without_runs() -> None:
    assert runs_of(None) == []
    assert runs_of({"runs": {}}) == []
    assert runs_of({"segments": []}) == []
