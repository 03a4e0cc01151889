"""What files of run directories name as scratch is removed with them, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

from tamis.stores.told_scratch import remove_below


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
    tell(work / "keys-0" / "_tamis", "scratch.json", path=blocks)
    told = tell(tmp_path / "out" / "_tamis" / "curation" / "0" / "_tamis", "work.json", path=work)
    assert remove_below(str(tmp_path / "out"))
    assert not list((tmp_path / "scratch").iterdir())
    assert not told.exists()


def test_what_is_no_scratch_stays_whatever_a_file_says(tmp_path: Path) -> None:
    mine, open_to_all = make(tmp_path / "precious"), make(tmp_path / f"tamis-{'c' * 16}")
    open_to_all.chmod(0o777)
    for i, path in enumerate((mine, open_to_all, f"{mine}/../precious", "", 5)):
        tell(tmp_path / "out" / str(i), "scratch.json", path=path)
    (tmp_path / "out" / "9").mkdir()
    (tmp_path / "out" / "9" / "work.json").write_text("[no JSON")
    assert remove_below(str(tmp_path / "out"))
    assert (mine / "block").exists()
    assert (open_to_all / "block").exists()


def test_scratch_that_names_itself_ends(tmp_path: Path) -> None:
    work = make(tmp_path / f"tamis-{'d' * 16}")
    tell(work / "_tamis", "scratch.json", path=work)
    assert remove_below(str(work))
    assert not work.exists()


def test_a_place_that_cannot_be_removed_stays_known(tmp_path: Path) -> None:
    told = tell(tmp_path / "_tamis", "work.json", far=f"s3://bucket/../tamis-{'e' * 16}")
    assert not remove_below(str(tmp_path))
    assert told.exists()
