"""A pipeline that is run from Python says what it does, and says nothing with progress=False."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.backends.progress import ProgressDisplay
from tamis.curation import Curation, ExactDuplicates
from tamis.engine.run.event_loop import EventLoop
from tamis.stages.deduplication.exact.workflow import ExactDeduplicationWorkflow
from tamis.stages.text.filters import ScoreFilter
from tamis.stages.text.filters.heuristic import WordCountFilter
from tamis.stages.text.io.reader import JsonlReader

WORKING: dict[str, Any] = {
    "phase": "working",
    "seconds": 1.0,
    "left_bytes": 5,
    "total_bytes": 10,
    "read_bytes": 5,
    "documents": 1,
    "written": 1,
    "dropped": 0,
    "quarantined": 0,
    "used_bytes": 1,
    "budget_bytes": 2,
}


def test_a_summary_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"text": "one"}\n{"text": "two words"}\n')
    stages = [JsonlReader(str(tmp_path / "in")), ScoreFilter(WordCountFilter(2))]
    executor = InProcessExecutor()
    Pipeline("words", stages=stages).run(executor, run_dir=str(tmp_path / "run"))
    told = capsys.readouterr()
    assert told.err.startswith("words: 2 documents read, 1 written, 1 dropped; 0:0")
    assert (told.out, executor.progress) == ("", None)
    Pipeline("words", stages=stages).run(executor, run_dir=str(tmp_path / "run"))
    assert "finished earlier, nothing to do (1 documents in" in capsys.readouterr().err
    Pipeline("words", stages=stages).run(executor, progress=False)
    assert capsys.readouterr().err == ""


def test_one_line_that_is_written_over_in_a_notebook(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    with ProgressDisplay() as shown:
        shown.show(WORKING)
        shown.show({"phase": "compiling", "done": 1, "of": 9, "seconds_left": 20})
    lines = capsys.readouterr().err.split("\r")
    assert lines[0].startswith(" 50 %  ETA ")
    assert lines[1].startswith("compiling kernels")
    assert lines[2].strip() == ""


def test_an_interrupt_prints_what_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))  # shows what a terminal does
    monkeypatch.setattr(EventLoop, "run", interrupted)
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n')
    with pytest.raises(KeyboardInterrupt):
        Pipeline("p", stages=[JsonlReader(str(tmp_path))]).run()
    assert "\rinterrupted: waiting for what is being committed ..." in capsys.readouterr().err


def test_workflows_name_their_passes_and_end_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"text": "one"}\n{"text": "one"}\n{"text": "two words"}\n')

    def find(progress: Any, **more: Any) -> str:
        workflow = ExactDeduplicationWorkflow("ids", input_path="in", input_filetype="jsonl")
        workflow.run(executor=InProcessExecutor(), progress=progress, **more)
        return capsys.readouterr().err

    said = find(True).splitlines()
    assert said[:2] == ["pass: reading documents, making keys", "pass: deciding which ones go"]
    assert said[2] == "pass: writing the ids of duplicates"
    assert said[3].startswith("exact deduplication: 3 documents read, 1 duplicate document found; 0:0")
    assert (
        find(True)
        == f"exact deduplication: finished earlier, nothing to do (1 duplicate document found; {tmp_path}/ids)\n"
    )
    states: list[dict[str, Any]] = []
    assert find(states.append, fresh=True) == ""
    assert {state["pass_label"].partition("-")[0] for state in states} == {"keys", "decision", "ids"}
    assert find(False, fresh=True) == ""

    curation = Curation([ScoreFilter(WordCountFilter(2)), ExactDuplicates()], "in", "out")
    curation.run(InProcessExecutor())
    assert "pass: reading documents again, writing those that stay\n" in (err := capsys.readouterr().err)
    assert "curation: 3 documents read, 1 written, 2 dropped; 0:0" in err.splitlines()[-1]
    curation.run(InProcessExecutor(), progress=False)
    assert capsys.readouterr().err == ""
