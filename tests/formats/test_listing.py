"""Which files an input means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tamis.errors import UsageError
from tamis.formats.listing import list_files

SUFFIXES = (".jsonl", ".jsonl.gz")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (
        "b.jsonl",
        "a.jsonl",
        "sub/c.jsonl.gz",
        "sub/note.txt",
        ".hidden.jsonl",
        "_tamis/x.jsonl",
        ".git/y.jsonl",
        "_z.jsonl",
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}\n")
    return tmp_path


def names(folder: Path, *paths: str, limit: int | None = None) -> list[str]:
    found = list_files([str(folder / p) for p in paths], SUFFIXES, limit)
    return [os.path.relpath(p, folder) for p in found.paths]


def test_folders_are_searched_in_order_without_hidden_names(folder: Path) -> None:
    assert names(folder, "") == ["a.jsonl", "b.jsonl", "sub/c.jsonl.gz"]


def test_a_file_that_is_named_is_taken_whatever_its_name(folder: Path) -> None:
    assert names(folder, "_z.jsonl", ".hidden.jsonl") == ["_z.jsonl", ".hidden.jsonl"]
    assert names(folder, "_tamis") == ["_tamis/x.jsonl"]


def test_globs_are_sorted_and_keep_to_the_suffixes(folder: Path) -> None:
    assert names(folder, "[ab].jsonl") == ["a.jsonl", "b.jsonl"]
    assert names(folder, "sub/*") == ["sub/c.jsonl.gz"]
    assert names(folder, "**/*.gz") == ["sub/c.jsonl.gz"]
    assert names(folder, "su*") == ["sub/c.jsonl.gz"]


def test_a_name_that_looks_like_a_glob_and_exists_is_a_file(folder: Path) -> None:
    (folder / "x[1].jsonl").write_text("{}\n")
    assert names(folder, "x[1].jsonl") == ["x[1].jsonl"]


def test_each_file_once_in_the_order_of_the_inputs(folder: Path) -> None:
    assert names(folder, "b.jsonl", "", "a.jsonl") == ["b.jsonl", "a.jsonl", "sub/c.jsonl.gz"]


def test_a_limit_ends_the_search(folder: Path) -> None:
    assert names(folder, "", limit=2) == ["a.jsonl", "b.jsonl"]


def test_sizes_and_times(folder: Path) -> None:
    (folder / "a.jsonl").write_text("{}\n{}\n")
    found = list_files(str(folder / "a.jsonl"), SUFFIXES)
    assert (len(found), list(found.sizes), found.total_bytes) == (1, [6], 6)
    assert found.mtimes_ns[0] == (folder / "a.jsonl").stat().st_mtime_ns


def test_a_broken_link_is_listed_for_the_worker_to_report(folder: Path) -> None:
    (folder / "sub" / "broken.jsonl").symlink_to(folder / "nowhere")
    found = list_files(str(folder / "sub"), SUFFIXES)
    assert list(found.sizes) == [-1, 3]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("gone", "no such file or folder"),
        ("gone*.jsonl", "nothing matches"),
        ("sub/note.txt", "cannot tell its format"),
        ("empty", "holds nothing that ends in .jsonl"),
        ("pipe.jsonl", "not a regular file"),
    ],
)
def test_inputs_that_mean_nothing_are_refused(folder: Path, path: str, message: str) -> None:
    (folder / "empty").mkdir()
    os.mkfifo(folder / "pipe.jsonl")
    with pytest.raises(UsageError, match=message):
        names(folder, path)


def test_remote_paths_are_refused() -> None:
    with pytest.raises(UsageError, match="s3://bucket/x: remote paths are not read"):
        list_files("s3://bucket/x", SUFFIXES)
