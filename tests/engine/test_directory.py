"""The run directory: lock, plan, foreign files, --fresh, recovery, changed inputs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.engine.ledger import Ledger
from tamis.engine.messages import StagedFile
from tamis.engine.run.input_identity import identify_inputs
from tamis.engine.run.output.commit import commit_group
from tamis.engine.run.output.directory import RunDir
from tamis.engine.schema import (
    CommitRecord,
    CommittedFile,
    FileKind,
    InputIdentity,
    RecordedRule,
    RunPlan,
    StageDescription,
)
from tamis.engine.supervisor.actions import CommitPartition
from tamis.engine.units import Piece, PieceKind
from tamis.errors import RunConflict
from tamis.formats.input_files.listing import FileList
from tamis.stages.text.io import JsonlReader, JsonlWriter
from tests.support.run_dirs import data_names, run_dir_path


@pytest.fixture
def folder(tmp_path: Path) -> RunDir:
    made = RunDir(str(tmp_path / "out"))
    made.open()
    return made


def commit_one(folder: RunDir, start: int, end: int, at_end: bool = False) -> str:
    path = os.path.join(folder.staged, f"u{start}")
    Path(path).write_text("x\n")
    about = StagedFile(path, FileKind.OUTPUT, 1, 2, content="0" * 32)
    job = CommitPartition(
        1, Piece(0, PieceKind.BYTES, "in", start, end), 0, [(0, start, end, at_end)], [about], Ledger().to_dict()
    )
    commit_group([job], folder.output, folder.quarantine, folder.log)
    return f"part-000000-{start:015d}.jsonl"


def test_two_runs_cannot_share_an_output(folder: RunDir) -> None:
    with pytest.raises(RunConflict, match="another run is writing"):
        RunDir(folder.output).open()
    folder.close()
    second = RunDir(folder.output)
    second.open()
    second.close()


def test_an_output_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunConflict, match="cannot write to"):
        RunDir(str(tmp_path / "file" / "out")).open()


@pytest.mark.parametrize("mode", ["ignore", "overwrite"])
def test_foreign_files_in_the_output_are_refused(tmp_path: Path, mode: str) -> None:
    (tmp_path / "data.txt").write_text("mine")
    with pytest.raises(RunConflict, match=r"did not write \('data.txt'\)"):
        RunDir(str(tmp_path)).check_foreign(mode)


def test_append_accepts_foreign_files_and_error_refuses_any(tmp_path: Path) -> None:
    RunDir(str(tmp_path)).check_foreign("error")
    (tmp_path / "data.txt").write_text("mine")
    RunDir(str(tmp_path)).check_foreign("append")
    with pytest.raises(RunConflict, match="mode='error'"):
        RunDir(str(tmp_path)).check_foreign("error")
    with pytest.raises(RunConflict, match="is a file"):
        RunDir(str(tmp_path / "data.txt")).check_foreign("ignore")


def test_the_plan_comes_back_and_a_damaged_one_is_refused(folder: RunDir) -> None:
    assert folder.read_plan() is None
    plan = RunPlan(
        "id", "x", InputIdentity(["a"], [1], [2], ["f"]), ["jsonl"], [StageDescription("s")], [RecordedRule("s")]
    )
    folder.write_plan(plan)
    assert folder.read_plan() == plan
    assert not os.path.exists(os.path.join(folder.path, "plan.json.tmp"))
    (Path(folder.path) / "plan.json").write_text("{")
    with pytest.raises(RunConflict, match=r"plan.json is damaged"):
        folder.read_plan()
    (Path(folder.path) / "plan.json").write_text('{"version": 99}')
    with pytest.raises(RunConflict, match="another version"):
        folder.read_plan()


def test_recover_reports_what_is_covered(folder: RunDir) -> None:
    commit_one(folder, 0, 50)
    commit_one(folder, 50, 80)
    commit_one(folder, 90, 100, at_end=True)
    past = folder.recover()
    done = past.done[0].get(0)
    assert done is not None
    assert (done.ranges.pairs(), done.size, done.complete) == ([(0, 80), (90, 100)], 100, False)
    assert past.n_files == 3


def test_a_committed_file_that_is_gone_or_changed_is_refused(folder: RunDir) -> None:
    name = commit_one(folder, 0, 50)
    (Path(folder.output) / name).write_text("longer\n")
    with pytest.raises(RunConflict, match="committed with 2 bytes and has 7"):
        folder.recover()
    os.unlink(os.path.join(folder.output, name))
    with pytest.raises(RunConflict, match="was committed by this run and is gone"):
        folder.recover()


def test_fresh_removes_what_the_log_names_and_nothing_else(folder: RunDir) -> None:
    name = commit_one(folder, 0, 50)
    (Path(folder.output) / "foreign.txt").write_text("mine")
    folder.write_plan(RunPlan("id", "x"))
    (Path(folder.staged) / "u9").write_text("half")
    folder.log.close()
    folder.forget()
    assert data_names(folder.output) == ["foreign.txt"]
    assert name not in os.listdir(folder.output)
    assert sorted(os.listdir(folder.path)) == ["lock", "quarantine", "rejected", "scores", "staged", "verdicts"]
    assert folder.recover().n_files == 0


def test_fresh_never_follows_a_name_out_of_the_output(folder: RunDir, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    folder.log.append([CommitRecord(0, [], [CommittedFile("../precious", FileKind.OUTPUT)], {})])
    folder.log.close()
    folder.forget()
    assert (tmp_path / "precious").read_text() == "mine"


def test_scratch_elsewhere_is_emptied_at_start_and_removed_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "fast").mkdir()
    folder = RunDir(str(tmp_path / "out"), str(tmp_path / "fast"))
    folder.open()
    made = Path(folder.make_scratch())
    assert made.parent == tmp_path / "fast"
    (made / "old.block").write_text("left")
    assert os.listdir(folder.make_scratch()) == []
    folder.close()
    assert os.listdir(tmp_path / "fast") == []


def test_changes_of_inputs_are_named(tmp_path: Path) -> None:
    def describe(*names: str) -> InputIdentity:
        files = FileList()
        for name in names:
            info = os.stat(tmp_path / name)
            files.append(str(tmp_path / name), info.st_size, info.st_mtime_ns)
        return identify_inputs(files)

    for name in ("a", "b"):
        (tmp_path / name).write_text(name * 10)
        os.utime(tmp_path / name, ns=(10**18, 10**18))
    before = describe("a", "b")
    assert before.changes(describe("a", "b")) == []
    assert before.changes(describe("a")) == [f"{tmp_path}/b is gone"]
    assert before.changes(describe("b", "a")) == ["the files come in another order"]
    (tmp_path / "b").write_text("c" * 10)
    assert before.changes(describe("a", "b")) == [f"{tmp_path}/b was modified"]
    os.utime(tmp_path / "b", ns=(10**18, 10**18))
    assert before.changes(describe("a", "b")) == [f"{tmp_path}/b has other contents"]
    (tmp_path / "b").write_text("longer than before")
    assert before.changes(describe("a", "b")) == [f"{tmp_path}/b had 10 bytes and has 18"]


def test_fresh_that_is_killed_anywhere_is_no_finished_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever file was the last to go: the next run, which is not told --fresh, starts over and writes everything."""
    (tmp_path / "in.jsonl").write_text("".join(f'{{"text": "{i}"}}\n' for i in range(50)))

    def run() -> Any:
        stages = [JsonlReader(str(tmp_path / "in.jsonl")), JsonlWriter(str(tmp_path / "out"))]
        pipeline = Pipeline("copy", stages=stages)
        pipeline.run(InProcessExecutor(), progress=False)
        return pipeline.last_result

    for left in range(100):
        assert (run().ledger.written.n, run().status) == (50, "already")
        folder, unlink = RunDir(str(tmp_path / "out")), os.unlink
        folder.open()
        budget = [left]

        def killed(path: Any, *rest: Any, budget: list[int] = budget, unlink: Any = unlink, **more: Any) -> None:
            if not budget[0]:
                raise KeyboardInterrupt
            budget[0] -= 1
            unlink(path, *rest, **more)

        with monkeypatch.context() as patch:
            patch.setattr(os, "unlink", killed)
            with contextlib.suppress(KeyboardInterrupt):
                folder.forget()
                break
        folder.close()
        again = run()
        assert (again.status, again.ledger.written.n) == ("finished", 50), left
    assert left > 4
    folder.close()


def test_a_lost_log_is_no_finished_run(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n')
    stages = [JsonlReader(str(tmp_path / "in.jsonl")), JsonlWriter(str(tmp_path / "out"))]
    Pipeline("copy", stages=stages).run(InProcessExecutor(), progress=False)
    os.unlink(run_dir_path(tmp_path / "out") / "commit.log")
    os.unlink(next((tmp_path / "out").glob("part-*")))
    pipeline = Pipeline("copy", stages=stages)
    pipeline.run(InProcessExecutor(), progress=False)
    assert pipeline.last_result is not None
    assert (pipeline.last_result.status, pipeline.last_result.ledger.written.n) == ("finished", 1)


def test_a_file_system_without_hard_links_is_reported_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: Any, **__: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n')

    def copy(name: str) -> Any:
        stages = [JsonlReader(str(tmp_path / "in.jsonl")), JsonlWriter(str(tmp_path / name))]
        pipeline = Pipeline("copy", stages=stages)
        pipeline.run(InProcessExecutor(), progress=False)
        return pipeline.last_result

    assert copy("finished").status == "finished"
    monkeypatch.setattr(os, "link", forbidden)
    with pytest.raises(RunConflict, match=r"without hard links .*, which commits need; write to another disk"):
        copy("out")
    assert data_names(tmp_path / "out") == []
    assert os.listdir(run_dir_path(tmp_path / "out") / "staged") == []
    assert copy("finished").status == "already"  # one that was copied there
