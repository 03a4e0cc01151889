"""Ranges that hold as often as they say, whatever the model behind them gets wrong."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tamis.errors import UsageError
from tamis.forecast import machine_profiles, ranges
from tamis.forecast.prediction import Conditions, RunMeasurement, parse_prediction, predict
from tamis.forecast.ranges import FIGURES, KEPT, PROBE, PROFILE, SHIPPED, TABLE, Ranges, percentile
from tamis.memory.predictor import Predictor

MB = 10**6


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TAMIS_PROFILES", "on")
    monkeypatch.setenv("TAMIS_PROFILE_DIR", str(tmp_path / "profiles"))
    return tmp_path / "profiles"


@pytest.mark.parametrize(("bias", "noise"), [(0.0, 0.3), (1.5, 0.4), (-0.7, 1.5), (0.0, 3.0)])
def test_nine_in_ten_hold_after_a_while_whatever_the_model_got_wrong(bias: float, noise: float) -> None:
    rng, known, held = random.Random(4), Ranges(), []
    for i in range(600):
        off = rng.gauss(bias, noise)
        low, _, high = known.reach("seconds", PROFILE)
        if i >= 60:
            held.append(low <= off <= high)
        known.note("seconds", PROFILE, off, low <= off <= high)
    assert 0.86 <= sum(held) / len(held) <= 0.97
    assert known.coverage() == {"seconds": [sum(known.held["seconds"]), KEPT]}


def test_a_machine_that_becomes_busy_is_followed() -> None:
    rng, known = random.Random(4), Ranges()
    for i, off in enumerate([rng.gauss(0, 0.3) for _ in range(100)] + [rng.gauss(2, 0.5) for _ in range(KEPT)]):
        known.note("seconds", PROFILE, off, i % 10 > 0)
    low, middle, high = known.reach("seconds", PROFILE)
    assert low > 0.8
    assert middle == pytest.approx(2, abs=0.2)
    assert high < 3.2


def test_without_experience_the_shipped_values_stand_in_and_go_when_there_is_enough() -> None:
    known = Ranges()
    for figure in FIGURES:
        for kind in (TABLE, PROBE, PROFILE):
            values = sorted(SHIPPED[figure][kind])
            assert list(SHIPPED[figure][kind]) == values
            assert known.reach(figure, kind)[::2] == (values[0], values[-1])
    for i in range(40):
        known.note("seconds", PROFILE, 0.25, i % 10 > 0)
    assert known.reach("seconds", PROFILE) == (0.25, 0.25, 0.25)
    assert known.reach("seconds", PROBE)[1] == percentile(SHIPPED["seconds"][PROBE], 0.5)
    assert known.reach("output_bytes", PROFILE) == (-1.0, 0.0, 1.0)  # figures that are not kept: as the model says


def test_runs_of_every_size_and_setting_lie_in_their_ranges() -> None:
    """Predict every job from those before it, on a fake machine that does not follow the model."""
    rng, known = random.Random(9), Ranges()
    past: dict[int, list[RunMeasurement]] = {}
    held: dict[str, list[bool]] = {name: [] for name in ("peak_bytes", "seconds")}
    models = [Predictor(32 * MB)]
    for i in range(400):
        pipeline, n = rng.randrange(6), rng.choice((1, 2, 4))
        budget = rng.choice((300, 600, 2000)) * MB
        decoded = int(10 ** rng.uniform(6, 9))
        packed = rng.choice((1.0, 1.0, 3.0))
        asked = Conditions(budget, n, 120 * MB, 14 * MB, budget // (2 * n), int(decoded / packed), decoded, 32 * MB)
        earlier = past.setdefault(pipeline, [])
        kind = PROFILE if earlier else TABLE
        found = predict(asked, models, earlier[-20:], 1e-8, kind=kind, learned=bool(earlier), ranges=known)
        largest = min(decoded, 20 * MB)
        above = (20 + 3 * pipeline) * MB + (2 + pipeline) * largest * packed**0.3
        peak = min((110 * MB + min(n, 3) * above * 0.7) * math.exp(rng.gauss(0, 0.08)), budget)
        seconds = (1.1 + decoded * (1 + pipeline) * 6e-9 / n**0.8) * math.exp(rng.gauss(0, 0.25))
        took = RunMeasurement(
            asked,
            int(peak),
            seconds,
            0.8 * (seconds - 1) * n if seconds > 1.2 else 0.0,
            1.0,
            0,
            decoded,
            100,
            9,
            i,
            bool(earlier),
            largest,
            int(above),
        )
        for name, value in (("peak_bytes", peak), ("seconds", seconds)):
            span = getattr(found, name)
            middle, half = found.centres[name]
            if i >= 50:
                held[name].append(span.low <= value <= span.high)
            known.note(name, kind, math.log(value / middle) / half, span.low <= value <= span.high)
        earlier.append(took)
    for name in held:
        assert 0.85 <= sum(held[name]) / len(held[name]) <= 0.98, (name, sum(held[name]))


def prediction(peak: float = 100.0, **more: Any) -> Any:
    span = {"low": 80.0, "expected": 100.0, "high": 150.0, "measured": peak, "inside": True}
    return {
        "kind": PROFILE,
        "centres": {"peak_bytes": [100.0, 0.5], "seconds": [2.0, 0.25]},
        "peak_bytes": span,
        **more,
    }


def test_a_run_is_remembered_in_spreads_from_the_centre(kept: Path) -> None:
    ranges.learn(
        prediction(
            100 * math.exp(0.25), seconds={"low": 0, "expected": 1, "high": 1.5, "measured": 2.0, "inside": False}
        )
    )
    found = ranges.load()
    assert found.off == {"peak_bytes": {PROFILE: [0.5]}, "seconds": {PROFILE: [0.0]}}
    assert found.coverage() == {"peak_bytes": [1, 1], "seconds": [0, 1]}
    assert machine_profiles.list_profiles() == []  # not the profile of a pipeline
    for damage in (
        {"kind": "x"},
        {"centres": None},
        {"centres": {"peak_bytes": [1.0]}},
        {"centres": {"peak_bytes": [0.0, "a"]}},
    ):
        ranges.learn(parse_prediction({**prediction(), **damage}))
    assert ranges.load() == found


def test_a_plan_after_a_probe_is_compared_with_its_run_once(kept: Path) -> None:
    asked = Conditions(9, 2, 0, 0, 0, 5, 5, 0)
    ranges.remember_planned("key", {**prediction(), "kind": PROBE, "conditions": asked._asdict()})
    assert ranges.take_planned("other", asked) is None
    found = ranges.take_planned("key", asked)
    assert found is not None
    assert found["kind"] == PROBE
    assert ranges.take_planned("key", asked) is None
    ranges.remember_planned("key", {**prediction(), "conditions": asked._asdict()})
    assert ranges.take_planned("key", asked._replace(n_workers=1)) is None  # another run than the planned one
    for i in range(30):
        ranges.remember_planned(f"key-{i}", prediction())
    assert len(ranges.load().planned) == 20


def test_profiles_that_are_off_keep_nothing(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAMIS_PROFILES", "off")
    ranges.learn(prediction())
    ranges.learn_command(0.1, prediction())
    assert ranges.load() == Ranges()
    assert not kept.exists()


def test_the_time_of_a_command_next_to_its_run_is_learned(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ranges.load().start_of_command_s == ranges.COMMAND_S
    monkeypatch.setattr(ranges, "age_s", lambda: 3.5)
    for run_s in (2.5, 2.9, 3.0, 4.0):  # the last cannot be: it is not believed
        ranges.learn_command(run_s, prediction())
    found = ranges.load()
    assert found.command_s == [1.0, 0.6, 0.5]
    assert found.start_of_command_s == 0.6
    # The centre of the run's seconds was 2, and a command was thought to take 0.45 beside it, then 1.0, then 0.6.
    expected = [math.log(3.5 / (2.0 + beside)) / 0.25 for beside in (ranges.COMMAND_S, 1.0, 0.6)]
    assert found.off == {"command_seconds": {PROFILE: pytest.approx(expected, abs=0.001)}}


def test_a_plan_reports_the_time_of_the_whole_command() -> None:
    known = Ranges(command_s=[0.5], held={"peak_bytes": [True, False]})
    made = {"kind": PROFILE, "centres": {"peak_bytes": [9.0, 0.5], "seconds": [2.0, 0.25]}, "seconds": {}}
    told = ranges.with_command(made, known)
    assert told["centres"]["command_seconds"] == [2.5, 0.25]
    assert [told["seconds"][n] for n in ("low", "expected", "high")] == [
        round(2.5 * math.exp(0.25 * r), 2) for r in known.reach("command_seconds", PROFILE)
    ]
    assert (told["command_s"], told["held"]) == (0.5, {"peak_bytes": [1, 2]})


def test_ranges_that_failed_reach_further_and_ranges_that_all_held_less_far() -> None:
    known = Ranges()
    for i in range(60):
        known.note("seconds", PROFILE, i / 10, True)
    assert known.level("seconds") == 0.8
    narrow = known.reach("seconds", PROFILE)
    known.held["seconds"] = [True, True, False] * 20
    assert known.level("seconds") == 0.98
    wide = known.reach("seconds", PROFILE)
    assert wide[0] < narrow[0] < narrow[2] < wide[2]
    assert wide[1] == narrow[1]
    known.held["seconds"] = ([True] * 9 + [False]) * 8
    assert known.level("seconds") == pytest.approx(0.9)


@pytest.mark.parametrize(
    "bad",
    [
        None,
        [],
        {},
        {"off": {}, "held": []},
        {"off": {"x": {}}, "held": {}},
        {"off": {"seconds": {"x": []}}, "held": {}},
        {"off": {"seconds": {TABLE: ["1"]}}, "held": {}},
        {"off": {"seconds": {TABLE: [1e9]}}, "held": {}},
        {"off": {"seconds": {TABLE: [True]}}, "held": {}},
        {"off": {}, "held": {"seconds": [1]}},
        {"off": {}, "held": {}, "command_s": [-1e9]},
        {"off": {"seconds": {TABLE: [0.0] * 10_000}}, "held": {}},
        {"off": {}, "held": {}, "planned": [1]},
    ],
)
def test_what_is_damaged_is_refused_and_read_as_nothing(kept: Path, bad: Any) -> None:
    with pytest.raises(UsageError, match="ranges"):
        Ranges.from_dict(bad)
    machine_profiles.save(ranges.KEY, {ranges.KEY: bad})
    assert ranges.load() == Ranges()


def test_all_of_it_survives_a_file(kept: Path) -> None:
    made = Ranges({"seconds": {TABLE: [0.5, -1.0]}}, {"seconds": [True, False]}, [0.4], {"k": {"kind": PROBE}})
    assert ranges.save(made)
    assert ranges.load() == made
    assert replace(made, command_s=[]) != made
