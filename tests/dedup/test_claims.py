"""What claims an output: what was committed to it, and not a call that ended before it did anything."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.dedup.exact.workflow import RemoveExactDuplicates
from tamis.dedup.workflow import Workflow
from tamis.engine.run.output.directory import RunDir
from tamis.errors import BudgetError, RunConflict, UsageError
from tamis.stages.base import ProcessingStage
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter
from tamis.stages.text.modules.add_id import AddId
from tests.support.run_dirs import run_dir_path


@pytest.fixture
def source(tmp_path: Path) -> str:
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"text": f"document {i % 4}"}) for i in range(6)]
    (tmp_path / "in" / "a.jsonl").write_text("\n".join(lines) + "\n")
    return str(tmp_path / "in")


def run(source: str, output: Path, settings: dict[str, Any] | None = None, **parameters: Any) -> Any:
    return RemoveExactDuplicates(str(output), source, **parameters).run(
        **{"memory": "400MB", "workers": 1, **(settings or {})}
    )


@pytest.mark.parametrize(
    ("wrong", "error", "there"),
    [
        ({"source": "missing/"}, UsageError, True),
        ({"settings": {"memory": "10MB"}}, BudgetError, False),
        ({"against": "no-index/"}, UsageError, False),
        ({"settings": {"quarantine_limit": "many"}}, UsageError, False),
    ],
    ids=["no input", "no memory", "no index", "a setting"],
)
def test_a_wrong_call_leaves_nothing(
    tmp_path: Path, source: str, wrong: dict[str, Any], error: type[Exception], there: bool
) -> None:
    output, scratch = tmp_path / "out", tmp_path / "scratch"
    if there:
        output.mkdir()
    settings = {"scratch": str(scratch), **wrong.get("settings", {})}
    with pytest.raises(error):
        run(**{"source": source, "output": output, **wrong, "settings": settings})
    assert os.listdir(output) == [] if there else not output.exists()
    assert not scratch.exists() or os.listdir(scratch) == []


def test_a_call_that_was_killed_before_it_did_anything_claims_nothing(tmp_path: Path, source: str) -> None:
    output = tmp_path / "out"
    work = run_dir_path(output) / "dedup"
    work.mkdir(parents=True)
    (work / "identity.json").write_text(json.dumps({"name": "exact deduplication", "text_field": "body"}))
    result = run(source, output)
    assert (result.n_documents, result.n_duplicates) == (6, 2)
    with pytest.raises(RunConflict, match="already contains another deduplication"):
        run(source, output, text_field="body")
    assert (run_dir_path(output) / "dedup.json").exists()


class Broken(ProcessingStage[Any, Any]):
    name = "broken"

    def setup(self, worker_metadata: Any = None) -> None:
        raise ValueError("no such model")

    def process(self, task: Any) -> Any:
        return task


def test_a_run_that_wrote_nothing_can_be_followed_by_another(tmp_path: Path, source: str) -> None:
    def execute(*stages: Any) -> Any:
        pipeline = Pipeline("p", stages=[JsonlReader(source), *stages, JsonlWriter(str(tmp_path / "out"))])
        return pipeline.execute(InProcessExecutor())

    with pytest.raises(ValueError, match="no such model"):
        execute(Broken())
    left = run_dir_path(tmp_path / "out") / "dedup"  # of a deduplication that was killed in its last pass
    left.mkdir()
    (left.parent / "dedup.lock").touch()
    assert execute(AddId(id_field="a")).ledger.written.n == 6
    assert not left.exists()
    with pytest.raises(RunConflict, match="already contains a different run"):
        execute(AddId(id_field="b"))


def test_a_last_pass_that_wrote_nothing_leaves_those_before_it_alone(
    tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resume with stages that are described otherwise, as by another version: the decisions are still there."""
    output, scratch = tmp_path / "out", tmp_path / "scratch"
    write_json = RunDir.write_json

    def stopped(self: RunDir, name: str, value: Any) -> None:
        write_json(self, name, value)
        if name == "steps.json" and self.target == str(output):  # of the last pass: its plan is there
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunDir, "write_json", stopped)
        with pytest.raises(KeyboardInterrupt):
            run(source, output, {"scratch": str(scratch)})
    (work,) = scratch.iterdir()
    decided = (work / "summary.json").stat().st_mtime_ns
    plan = run_dir_path(output) / "plan.json"
    about = json.loads(plan.read_text())
    about["stages"][-3]["params"]["of another version"] = 1
    plan.write_text(json.dumps(about))
    seen: list[int] = []
    remove_work = Workflow.remove_work
    monkeypatch.setattr(
        Workflow,
        "remove_work",
        lambda self: (seen.append((work / "summary.json").stat().st_mtime_ns), remove_work(self))[1],
    )
    assert run(source, output, {"scratch": str(scratch)}).n_duplicates == 2
    assert seen == [decided]
    assert list(scratch.iterdir()) == []
