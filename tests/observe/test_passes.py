"""Where a run, or the pass of a deduplication, is looked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tamis.dedup.passes import Passes
from tamis.dedup.workflow import Workflow
from tamis.errors import UsageError
from tamis.observe.passes import find_run, find_shown_run
from tests.support.made_run import make_run
from tests.support.run_dirs import run_dir_path


def test_a_run(tmp_path: Path) -> None:
    folder = make_run(run_dir_path(tmp_path / "out"), seconds=1)
    assert find_run(str(tmp_path / "out")) == folder
    assert find_run(str(folder)) == folder
    assert find_shown_run(folder).run_dir == folder


def test_no_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no run of Tamis"):
        find_run(str(tmp_path))


def dated(folder: Path, at: float) -> Path:
    os.utime(folder / "run.sqlite", (at, at))
    return folder


def test_the_pass_under_way(tmp_path: Path) -> None:
    run_dir = run_dir_path(tmp_path / "out")
    keys = dated(make_run(run_dir_path(run_dir / "dedup/keys-0"), seconds=1), 1000)
    assert find_run(str(tmp_path / "out")) == run_dir
    found = find_shown_run(run_dir)
    assert (found.run_dir, found.whole_dir) == (keys, run_dir)
    texts = dated(make_run(run_dir_path(run_dir / "dedup/texts"), seconds=1), 2000)
    assert find_shown_run(run_dir).run_dir == texts
    dated(make_run(run_dir, seconds=1), 3000)
    assert find_shown_run(run_dir).run_dir == run_dir


def test_passes_under_the_scratch_folder_of_the_workflow(tmp_path: Path) -> None:
    passes = Passes("x", source=lambda: None, keys=[], output=str(tmp_path / "out"), decision=None, writer=None)  # type: ignore[arg-type,return-value]
    workflow = Workflow(passes, {"scratch": str(tmp_path / "scratch")})
    with workflow.output.locked(workflow, fresh=False):
        keys = make_run(run_dir_path(Path(workflow.work.path) / "keys-0"), seconds=1)
        assert keys.parents[2] == tmp_path / "scratch"
        assert find_shown_run(run_dir_path(tmp_path / "out"), str(tmp_path / "scratch")).run_dir == keys
        # A run directory may be anybody's: it does not say which folders of the user's are looked into.
        assert find_shown_run(run_dir_path(tmp_path / "out"), str(tmp_path / "other")).run_dir == run_dir_path(
            tmp_path / "out"
        )


def keys_of(run_dir: Path, group: int) -> Path:
    return run_dir_path(run_dir_path(run_dir / "curation" / str(group)) / "dedup" / "keys-0")


def test_the_pass_of_a_curation(tmp_path: Path) -> None:
    run_dir = run_dir_path(tmp_path / "out")
    dated(make_run(keys_of(run_dir, 0), seconds=1), 1000)
    assert find_run(str(tmp_path / "out")) == run_dir
    second = dated(make_run(keys_of(run_dir, 1), seconds=1), 2000)
    assert find_shown_run(run_dir).run_dir == second
    dated(make_run(run_dir, seconds=1), 3000)
    assert find_shown_run(run_dir).run_dir == run_dir
