"""Where run directories are: next to their outputs, and inside of them where that cannot or must not be."""

import os
from pathlib import Path

import pytest

from tamis.stores import run_locations
from tamis.stores.run_locations import has_run, is_run_dir, named_output, output_of_run_dir, run_dir_of


def make_run(run_dir: Path) -> Path:
    run_dir.mkdir(parents=True)
    (run_dir / "lock").touch()
    return run_dir


def test_a_run_directory_is_next_to_its_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_dir_of("out") == run_dir_of("out/") == "out.tamis"
    assert run_dir_of(tmp_path / "out") == f"{tmp_path}/out.tamis"
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "out")
    assert run_dir_of(".") == run_dir_of("./") == run_dir_of("../out/.") == f"{tmp_path}/out.tamis"


def test_links_to_an_output_lead_to_one_run_directory(tmp_path: Path) -> None:
    (tmp_path / "disk" / "out").mkdir(parents=True)
    (tmp_path / "link").symlink_to("disk/out")
    assert run_dir_of(tmp_path / "link") == f"{tmp_path}/disk/out.tamis"
    (tmp_path / "folder").symlink_to("disk")
    assert run_dir_of(tmp_path / "folder" / "out") == f"{tmp_path}/folder/out.tamis"


def test_one_that_exists_stays_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    make_run(tmp_path / "out.tamis")
    monkeypatch.setattr(run_locations, "_is_mount_point", lambda _: True)
    assert run_dir_of(out) == f"{out}.tamis"
    (out / "_tamis").mkdir(parents=True)
    assert run_dir_of(out) == f"{out}/_tamis"


def test_it_is_inside_of_a_mount_point_and_below_a_folder_that_is_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, mounts = tmp_path / "a volume", tmp_path / "mountinfo"
    out.mkdir()
    escaped = str(out).replace(" ", r"\040")
    mounts.write_text(f"1 0 8:1 / / rw - ext4 /dev/a rw\n36 1 8:1 /b {escaped} rw shared:1 - ext4 /dev/a rw\n")
    assert run_dir_of(out) == f"{out}.tamis"
    monkeypatch.setattr(run_locations, "_MOUNTS", str(mounts))
    assert run_dir_of(out) == f"{out}/_tamis"
    assert run_dir_of(tmp_path / "other") == f"{tmp_path}/other.tamis"
    assert run_dir_of("/proc") == "/proc/_tamis"
    assert run_dir_of("/") == "/_tamis"
    monkeypatch.setattr(os, "access", lambda path, *_, **__: path != str(tmp_path))
    assert run_dir_of(tmp_path / "other") == run_dir_of(tmp_path / "other" / "") == f"{tmp_path}/other/_tamis"
    assert run_dir_of(tmp_path / "missing" / "other") == f"{tmp_path}/missing/other/_tamis"


@pytest.mark.parametrize(
    "part",
    [
        "out.tamis/dedup/keys-0",
        "out/_tamis/curation/0",
        "out/shard-00001-of-00004",
        "scratch/tamis-dedup-0123456789abcdef/keys-0",
        "named.tamis",
    ],
)
def test_it_is_inside_of_a_part(tmp_path: Path, part: str) -> None:
    assert run_dir_of(tmp_path / part) == f"{tmp_path}/{part}/_tamis"


@pytest.mark.parametrize("run_dir", ["out.tamis", "out/_tamis"])
def test_that_of_an_output_in_another_one_is_in_the_run_directory_of_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_dir: str
) -> None:
    ids = tmp_path / "out" / "ids"
    assert run_dir_of(ids) == f"{ids}.tamis"
    make_run(tmp_path / run_dir)
    ids.mkdir(parents=True)
    inner = tmp_path / run_dir / "ids.tamis"
    assert run_dir_of(ids) == str(inner)
    assert not has_run(str(ids))
    make_run(inner)
    assert run_dir_of(ids) == run_dir_of(inner) == str(inner)
    assert has_run(str(ids))
    assert output_of_run_dir(inner) == named_output(inner) == str(ids)
    assert run_dir_of(ids / "parts") == f"{inner}/parts.tamis"
    assert output_of_run_dir(inner / "parts.tamis") == f"{ids}/parts"
    assert run_dir_of(tmp_path / run_dir / "curation" / "0") == f"{tmp_path}/{run_dir}/curation/0/_tamis"
    monkeypatch.chdir(ids)
    assert run_dir_of(".") == run_dir_of("../ids/") == str(inner)
    monkeypatch.chdir(tmp_path)
    assert run_dir_of("out/ids") == f"{run_dir}/ids.tamis"


def test_that_of_an_inner_output_is_inside_of_it_where_the_outer_run_directory_cannot_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path / "out.tamis")
    monkeypatch.setattr(os, "access", lambda path, *_, **__: path != f"{tmp_path}/out.tamis")
    assert run_dir_of(tmp_path / "out" / "ids") == f"{tmp_path}/out/ids/_tamis"
    make_run(tmp_path / "out.tamis" / "ids.tamis")
    assert run_dir_of(tmp_path / "out" / "ids") == f"{tmp_path}/out.tamis/ids.tamis"


def test_one_next_to_its_output_stays_there_when_that_is_in_an_output_later(tmp_path: Path) -> None:
    make_run(tmp_path / "out" / "ids.tamis")
    make_run(tmp_path / "out.tamis")
    assert run_dir_of(tmp_path / "out" / "ids") == f"{tmp_path}/out/ids.tamis"


@pytest.mark.parametrize("name", ["out.tamis", "out/_tamis"])
def test_a_run_directory_names_its_output(tmp_path: Path, name: str) -> None:
    run_dir = make_run(tmp_path / name)
    assert is_run_dir(str(run_dir))
    assert run_dir_of(run_dir) == run_dir_of(f"{run_dir}/") == str(run_dir)
    assert named_output(run_dir) == named_output(f"{run_dir}/") == output_of_run_dir(run_dir) == f"{tmp_path}/out"
    assert named_output(tmp_path / "out") == str(tmp_path / "out")


def test_what_only_has_such_a_name_is_an_output(tmp_path: Path) -> None:
    data = tmp_path / "data.tamis"
    data.mkdir()
    (data / "a.jsonl").write_text("{}\n")
    assert not is_run_dir(str(data))
    assert named_output(data) == str(data)


def test_one_that_was_renamed_is_still_one(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path / "moved")
    assert not is_run_dir(str(run_dir))
    (run_dir / "plan.json").write_text("{}")
    assert is_run_dir(str(run_dir))
    assert run_dir_of(run_dir) == str(run_dir)


def test_that_of_a_bucket_is_inside_of_its_local_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAMIS_RUNS", str(tmp_path))
    run_dir = run_dir_of("s3://bucket/out/")
    assert os.path.basename(run_dir) == "_tamis"
    assert run_dir_of(output_of_run_dir(run_dir)) == run_dir
