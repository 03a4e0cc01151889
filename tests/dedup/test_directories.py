"""The output of a workflow and its files between passes, each alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tamis.dedup.output_directory import OutputDirectory
from tamis.dedup.work_directory import WorkDirectory
from tamis.errors import RunConflict, UsageError
from tests.support.run_dirs import run_dir_path


class Contents:
    """What a workflow would keep in the output; records the calls."""

    def __init__(self, output: OutputDirectory, commits: bool = False) -> None:
        self.calls: list[str] = []
        self._output, self._commits = output, commits

    def check_output(self, run: Any) -> None:
        self.calls.append("check")

    def forget(self) -> None:
        self.calls.append("forget")

    def open_work(self) -> str:
        self.calls.append("open")
        return self._output.run_dir

    def remove_work(self) -> None:
        self.calls.append("remove")

    def has_commits(self) -> bool:
        return self._commits


def test_an_output_is_held_by_one_call_at_a_time(tmp_path: Path) -> None:
    output = OutputDirectory(str(tmp_path / "out"), "deduplication", "dedup.json")
    contents = Contents(output)
    with output.locked(contents, fresh=False):
        with pytest.raises(RunConflict, match="another deduplication is writing to"), output.locked(contents, False):
            pass
        output.write_record({"n": 1})
    assert output.read_record() == {"n": 1}
    assert contents.calls[:2] == ["check", "open"]


@pytest.mark.parametrize("commits", [True, False])
def test_a_call_that_fails_leaves_nothing_unless_something_was_committed(tmp_path: Path, commits: bool) -> None:
    output = OutputDirectory(str(tmp_path / "out"), "deduplication", "dedup.json")
    contents = Contents(output, commits)
    with pytest.raises(UsageError), output.locked(contents, fresh=False):
        raise UsageError("wrong")
    assert (tmp_path / "out").exists() == commits
    assert ("remove" in contents.calls) == (not commits)


def test_a_fresh_start_forgets_what_was_there(tmp_path: Path) -> None:
    output = OutputDirectory(str(tmp_path / "out"), "deduplication", "dedup.json")
    contents = Contents(output)
    with output.locked(contents, fresh=False):
        output.write_record({"n": 1})
    with output.locked(contents, fresh=True):
        assert output.read_record() is None
    assert contents.calls == ["check", "open", "check", "forget", "open"]


def test_files_between_passes_are_found_again_in_scratch(tmp_path: Path) -> None:
    run_dir = run_dir_path(tmp_path / "out")
    run_dir.mkdir(parents=True, mode=0o700)
    scratch = str(tmp_path / "scratch")
    first = WorkDirectory(str(run_dir), scratch)
    first.open()
    Path(first.path, "keys").write_bytes(b"12345")
    assert os.path.dirname(first.path) == scratch
    again = WorkDirectory(str(run_dir))
    assert again.open() == first.path
    assert again.size_bytes() == 5
    again.drop("keys")
    assert os.listdir(again.path) == []
    other = WorkDirectory(str(run_dir), str(tmp_path / "other"))
    other.open()
    assert os.listdir(scratch) == []
    other.remove()
    assert not os.path.exists(other.path)
