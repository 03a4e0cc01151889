"""A run's prediction: written at its start, compared at its end, better every time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tamis.backends.local import LocalExecutor
from tamis.engine.run.budget.expectation import profile_key, stage_names
from tamis.engine.schema import StageDescription
from tamis.forecast import machine_profiles
from tamis.forecast.experience import compared, models_of
from tamis.forecast.prediction import Conditions, RunMeasurement, runs_of
from tamis.memory.predictor import MIB, Predictor
from tamis.pipeline import Pipeline
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter
from tests.support.run_dirs import run_dir_path


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TAMIS_PROFILES", "on")
    monkeypatch.setenv("TAMIS_PROFILE_DIR", str(tmp_path / "profiles"))
    (tmp_path / "in").mkdir()
    line = json.dumps({"id": 1, "text": "some words " * 50}) + "\n"
    for i in range(3):
        (tmp_path / f"in/{i}.jsonl").write_text(line * 8000)
    return tmp_path


def run(place: Path, name: str, **settings: Any) -> dict[str, Any]:
    pipeline = Pipeline("copy", stages=[JsonlReader(str(place / "in")), JsonlWriter(str(place / name))])
    result = pipeline.execute(LocalExecutor(), memory="600MB", workers=2, **settings)
    assert result.exit_code == 0
    return result.prediction


def test_after_two_runs_the_interval_holds_the_third(place: Path) -> None:
    first, second, third = (run(place, f"out{i}") for i in range(3))
    assert [p["n_runs"] for p in (first, second, third)] == [0, 1, 2]
    assert first["basis"] == "starting table: this pipeline has not run on this machine yet"
    assert third["basis"] == "machine profile: 2 earlier runs of this pipeline on this machine"
    for name in ("peak_bytes", "scratch_bytes", "output_bytes"):
        assert third[name]["inside"], (name, third[name])
    # It has narrowed: at first the peak may be anything up to the budget.
    assert (
        third["peak_bytes"]["high"] / third["peak_bytes"]["low"]
        < first["peak_bytes"]["high"] / first["peak_bytes"]["low"]
    )
    assert third["output_bytes"]["expected"] == pytest.approx(third["output_bytes"]["measured"], rel=0.02)


def test_predicted_and_measured_are_kept_with_the_run(place: Path) -> None:
    found = run(place, "out")
    kept = json.loads((run_dir_path(place / "out") / "prediction.json").read_text())
    manifest = json.loads((run_dir_path(place / "out") / "manifest.json").read_text())
    assert kept == manifest["prediction"] == found
    for name in ("peak_bytes", "seconds", "scratch_bytes"):
        assert {"low", "expected", "high", "measured", "inside"} <= set(kept[name])
    assert kept["peak_bytes"]["measured"] == manifest["peak_bytes"]
    assert kept["confidence"] == 0.9


def test_the_profile_remembers_the_run(place: Path) -> None:
    run(place, "out")
    (file,) = machine_profiles.list_profiles()
    kept = machine_profiles.load(file.key)
    assert kept is not None
    assert kept["name"] == "copy"
    (took,) = runs_of(kept)
    size = sum(p.stat().st_size for p in (place / "in").iterdir())
    assert (took.conditions.decoded_bytes, took.conditions.budget_bytes, took.conditions.n_workers) == (
        size,
        600_000_000,
        2,
    )
    assert (took.n_documents, took.learned) == (24_000, False)
    assert took.busy_s > 0
    assert took.cpu_s > 0


def test_every_setting_that_has_to_do_with_memory_is_recorded(place: Path) -> None:
    run(place, "out", chosen_by={"workers": "recipe"}, blocksize="4MB")
    entries = json.loads((run_dir_path(place / "out") / "settings.json").read_text())["settings"]
    assert all(set(e) == {"name", "value", "chosen_by", "why", "evidence"} for e in entries)
    by = {e["name"]: e["chosen_by"] for e in entries}
    assert by == {
        "memory": "user",
        "counted in the budget": "default",
        "smallest budget": "machine",
        "workers": "recipe",
        "fixed memory": "machine",
        "worker memory at start": "machine",
        "pool": "default",
        "worker cap": "machine",
        "blocksize": "user",
        "queue": "default",
        "unsynced output": "default",
        "max_record": "default",
        "mode": "default",
        "scratch": "default",
        "allocator": by["allocator"],
        "partition model 0": "default",
        "predicted peak": "default",
        "partition model 0 at the end": "adaptation",
        "partition size": "adaptation",
        "scratch used": "adaptation",
    }
    values = {e["name"]: e["value"] for e in entries}
    assert (values["memory"], values["blocksize"], values["workers"]) == (600_000_000, 4_000_000, 2)
    assert values["max_record"] == 64 << 20


def test_a_profile_that_is_damaged_inside_is_as_good_as_none() -> None:
    good = Predictor()
    good.observe(MIB, 10, 3 * MIB)
    made, known = models_of({"segments": [good.to_dict(), [], {"version": 9}]}, 4, 8 * MIB)
    assert (len(made), known) == (4, [True, False, False, False])
    assert models_of({"segments": "x"}, 1, MIB)[1] == [False]
    assert models_of(None, 1, MIB)[1] == [False]


def test_names_for_the_table_are_those_of_what_a_stage_carries() -> None:
    stages = [
        StageDescription("tamis.stages.text.io.reader.JsonlReader"),
        StageDescription("tamis.x.ScoreFilter", {"filter_obj": {"class": "tamis.y.WordCountFilter:"}}),
        StageDescription("settings"),
    ]
    assert stage_names(stages) == ["tamis.stages.text.io.reader.JsonlReader", "tamis.y.WordCountFilter"]
    assert profile_key(stages) == profile_key([StageDescription(**s.to_dict()) for s in stages])
    assert profile_key(stages) != profile_key(stages[:2])


def test_what_was_measured_stands_next_to_the_interval() -> None:
    took = RunMeasurement(Conditions(10, 1, 1, 1, 1, 1, 1, 1), 7, 2.0, 1.0, 0.5, 0, 3, 1, 1)
    span = {"low": 5, "expected": 6, "high": 8}
    found = compared({"peak_bytes": span, "seconds": span, "cpu_s": 1.0}, took)
    assert found["peak_bytes"] == {**span, "measured": 7, "inside": True}
    assert found["seconds"] == {**span, "measured": 2.0, "inside": False}
    assert found["cpu_s"] == {"expected": 1.0, "measured": 0.5}
