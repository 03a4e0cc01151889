"""Alerts of runs that a program starts: rules from arguments or the environment, remedies, results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.curation import Curation
from tamis.errors import Incomplete, RecipeError, UsageError
from tamis.stages.deduplication.exact.workflow import ExactDeduplicationWorkflow
from tamis.stages.text.io import JsonlReader, JsonlWriter
from tests.support.run_dirs import run_dir_path

ALWAYS = {"rules": {"full": {"measure": "runtime", "above": "0s"}}}


@pytest.fixture(autouse=True)
def _no_rules_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TAMIS_ALERTS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for i in range(3):
        (tmp_path / "in" / f"{i}.jsonl").write_text(json.dumps({"text": f"document {i}"}) + "\n")
    return tmp_path / "in"


def pipeline(source: Path) -> Pipeline:
    return Pipeline(
        "p", stages=[JsonlReader(str(source), files_per_partition=1), JsonlWriter(str(source.parent / "out"))]
    )


def log_of(source: Path) -> str:
    return (run_dir_path(source.parent / "out") / "alerts.log").read_text()


def run(source: Path, **settings: Any) -> Any:
    made = pipeline(source)
    made.run(InProcessExecutor(), memory="512MB", progress=False, **settings)
    return made.last_result


def test_rules_of_an_argument_are_judged_and_counted(source: Path) -> None:
    result = run(source, alerts=ALWAYS)
    assert result.alerts["rules"] == {"full": 1}
    assert "full: the run " in log_of(source)


@pytest.mark.parametrize("named", ["argument", "environment", "configuration"])
def test_rules_of_a_file_are_found_as_on_the_command_line(
    source: Path, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = source.parent / "config" / "tamis"
    folder.mkdir(parents=True)
    file = folder / ("alerts.yaml" if named == "configuration" else "mine.yaml")
    file.write_text("rules:\n  full: {measure: runtime, above: 0s}\n")
    if named == "environment":
        monkeypatch.setenv("TAMIS_ALERTS", str(file))
    result = run(source, alerts=file if named == "argument" else None)
    assert result.alerts["rules"] == {"full": 1}


@pytest.mark.parametrize("off", ["off", False])
def test_alerts_can_be_off(source: Path, off: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAMIS_ALERTS", str(source / "not there.yaml"))
    assert run(source, alerts=off).alerts == {}


def test_the_environment_can_turn_them_off(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAMIS_ALERTS", "off")
    assert run(source).alerts == {}


def test_a_remedy_stops_the_run_and_the_same_call_continues(source: Path) -> None:
    stop = {"rules": {"full": {"measure": "runtime", "above": "0s", "do": "stop", "say": "enough"}}}
    with pytest.raises(Incomplete, match=r"alert full: .*enough"):
        run(source, alerts=stop)
    assert "enough" in log_of(source)
    result = run(source, alerts="off")
    assert result.ledger.written.n == 3


@pytest.mark.parametrize(
    ("alerts", "message"),
    [
        ({"rules": {"full": {"measure": "memory", "above": "much"}}}, "expected a limit"),
        ({"rules": {"ful": {}}}, "ful"),
        ({"sinks": {"chat": {"webhook": 5}}}, "alerts="),
        ({"rules": {"memory": {"above": object()}}}, "expected text, a number"),
    ],
)
def test_wrong_rules_are_reported_before_anything_is_written(source: Path, alerts: Any, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        run(source, alerts=alerts)
    assert not (source.parent / "out").exists()


def test_what_is_no_rules_at_all_is_refused(source: Path) -> None:
    with pytest.raises(UsageError, match="alerts: expected a file, a mapping or 'off', got 5"):
        run(source, alerts=5)


def test_a_watch_and_rules_are_not_given_both(source: Path) -> None:
    seen: list[Any] = []
    executor = InProcessExecutor(watch=lambda sample: seen.append(sample) or [])
    with pytest.raises(UsageError, match="there is a `watch` already"):
        pipeline(source).run(executor, memory="512MB", progress=False, alerts=ALWAYS)
    pipeline(source).run(executor, memory="512MB", progress=False)
    assert seen


def test_alerts_are_shown_above_the_progress(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline(source).run(InProcessExecutor(), memory="512MB", alerts=ALWAYS)
    assert "alert full: the run " in capsys.readouterr().err


def test_a_pipeline_may_have_its_rules_in_its_config(source: Path) -> None:
    made = pipeline(source)
    made.config["alerts"] = ALWAYS
    made.run(InProcessExecutor(), memory="512MB", progress=False)
    assert made.last_result is not None
    assert made.last_result.alerts["rules"] == {"full": 1}


def test_all_passes_of_a_deduplication_have_one_watch(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workflow = ExactDeduplicationWorkflow(
        input_path=str(source), output_path=str(source.parent / "out"), input_filetype="jsonl", perform_removal=True
    )
    result = workflow.run(memory="512MB", alerts=ALWAYS)
    assert result.alerts["rules"] == {"full": 1}
    assert result.leaks == []
    assert "full: the run " in log_of(source)
    assert "alert full: the run " in capsys.readouterr().err


def test_all_passes_of_a_curation_have_one_watch(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tamis.curation import ExactDuplicates

    file = source.parent / "mine.yaml"
    file.write_text("rules:\n  full: {measure: runtime, above: 0s}\n")
    monkeypatch.setenv("TAMIS_ALERTS", str(file))
    curation = Curation([ExactDuplicates()], str(source), str(source.parent / "out"))
    result = curation.run(memory="512MB", progress=False)
    assert result.alerts["rules"] == {"full": 1}
    assert result.leaks == []
    assert "full: the run " in log_of(source)
