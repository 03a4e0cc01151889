"""What files of run directories name as scratch is removed with them, and nothing else."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tamis.stores.scratch_references import register, remove_referenced_below, remove_referenced_scratch
from tests.support.run_dirs import run_dir_path


def make(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True)
    (folder / "block").write_bytes(b"x")
    return folder


def tell(run_dir: Path, name: str, **about: object) -> Path:
    run_dir.mkdir(parents=True, exist_ok=True)
    (run_dir / name).write_text(json.dumps({k: str(v) for k, v in about.items()}))
    return run_dir / name


def test_scratch_goes_with_that_of_the_runs_whose_directories_lie_in_it(tmp_path: Path) -> None:
    work = make(tmp_path / "scratch" / f"tamis-dedup-{'a' * 16}")
    blocks = make(tmp_path / "scratch" / f"tamis-{'b' * 16}")
    tell(run_dir_path(work / "keys-0"), "scratch.json", path=blocks)
    told = tell(run_dir_path(run_dir_path(tmp_path / "out") / "curation" / "0"), "work.json", path=work)
    assert remove_referenced_below(str(run_dir_path(tmp_path / "out")))
    assert not list((tmp_path / "scratch").iterdir())
    assert not told.exists()


def test_what_is_no_scratch_stays_whatever_a_file_says(tmp_path: Path) -> None:
    mine, open_to_all = make(tmp_path / "precious"), make(tmp_path / f"tamis-{'c' * 16}")
    open_to_all.chmod(0o777)
    for i, path in enumerate((mine, open_to_all, f"{mine}/../precious", "", 5)):
        tell(tmp_path / "out" / str(i), "scratch.json", path=path)
    (tmp_path / "out" / "9").mkdir()
    (tmp_path / "out" / "9" / "work.json").write_text("[no JSON")
    assert remove_referenced_below(str(tmp_path / "out"))
    assert (mine / "block").exists()
    assert (open_to_all / "block").exists()


def test_scratch_that_names_itself_ends(tmp_path: Path) -> None:
    work = make(tmp_path / f"tamis-{'d' * 16}")
    tell(run_dir_path(work), "scratch.json", path=work)
    assert remove_referenced_below(str(work))
    assert not work.exists()


def test_scratch_of_any_depth_goes(tmp_path: Path) -> None:
    folders = [make(tmp_path / "scratch" / f"tamis-{c * 16}") for c in "abcd"]
    tell(run_dir_path(tmp_path / "out"), "work.json", path=folders[0])
    for outer, inner in itertools.pairwise(folders):
        tell(run_dir_path(outer / "pass"), "scratch.json", path=inner)
    assert remove_referenced_below(str(run_dir_path(tmp_path / "out")))
    assert not list((tmp_path / "scratch").iterdir())


def test_scratch_of_an_output_in_another_one_stays(tmp_path: Path) -> None:
    outer, blocks = run_dir_path(tmp_path / "out"), make(tmp_path / "scratch" / f"tamis-{'f' * 16}")
    tell(outer, "lock")
    told = tell(run_dir_path(tmp_path / "out" / "ids"), "scratch.json", path=blocks)
    assert told.parent.parent == outer
    assert remove_referenced_below(str(outer))
    assert (blocks / "block").exists()
    assert told.exists()


def test_a_folder_that_is_still_written_to_stays_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker outlives the run that was killed: it writes a block while the next run removes the folder."""
    old, new = make(tmp_path / f"tamis-{'a' * 16}"), tmp_path / f"tamis-{'b' * 16}"
    pointer = tmp_path / "out" / "scratch.json"
    tell(tmp_path / "out", "scratch.json", path=old)
    real = os.rmdir

    def late(path: str, **options: Any) -> None:
        if str(path) == str(old):
            (old / "late block").write_bytes(b"x")
        real(path, **options)

    monkeypatch.setattr(os, "rmdir", late)
    assert not remove_referenced_scratch(str(pointer))
    assert old.exists()
    register(str(pointer), str(new))
    make(new)
    monkeypatch.undo()
    assert remove_referenced_scratch(str(pointer))
    assert not old.exists()
    assert not new.exists()
    assert not pointer.exists()


def test_a_place_that_cannot_be_removed_stays_known(tmp_path: Path) -> None:
    told = tell(run_dir_path(tmp_path / "out"), "work.json", far=f"s3://bucket/../tamis-{'e' * 16}")
    assert not remove_referenced_below(str(tmp_path))
    assert told.exists()
