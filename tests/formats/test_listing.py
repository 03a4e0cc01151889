"""Which files an input means."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tamis.errors import RunConflict, UsageError
from tamis.formats.input_files import skipped
from tamis.formats.input_files.listing import list_files
from tamis.formats.input_files.skipped import checked_paths
from tests.support.run_dirs import run_dir_path

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


def make_run_dir(path: Path) -> Path:
    (path / "quarantine").mkdir(parents=True)
    (path / "lock").touch()
    (path / "quarantine" / "q.jsonl").write_text("{}\n")
    return path


def names(folder: Path, *paths: str, limit: int | None = None, scratch: str | None = None) -> list[str]:
    found = list_files([str(folder / p) for p in paths], SUFFIXES, limit, scratch=scratch)
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


def test_a_suffix_counts_in_any_case(folder: Path) -> None:
    for name in ("A.JSONL", "B.Jsonl.GZ"):
        (folder / "sub" / name).write_text("{}\n")
    assert names(folder, "sub") == ["sub/A.JSONL", "sub/B.Jsonl.GZ", "sub/c.jsonl.gz"]
    assert names(folder, "sub/A.JSONL") == ["sub/A.JSONL"]


def passed(folder: Path, *paths: str, leave_out: tuple[str, ...] = ()) -> dict[str, tuple[int, list[str]]]:
    found = list_files([str(folder / p) for p in paths], SUFFIXES, leave_out=[str(folder / p) for p in leave_out])
    return {e.reason: (e.n, [os.path.relpath(p, folder) for p in e.examples]) for e in found.skipped.entries()}


def test_what_is_skipped_is_counted_with_its_reason_and_a_few_names(folder: Path) -> None:
    for i in range(5):
        (folder / f"t{i}.TXT").write_text("")
    (folder / "a.jsonl.lz4").write_text("")
    (folder / "README").write_text("")
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "dead.md").symlink_to("nowhere")
    assert passed(folder, "") == {
        "ends in .txt": (6, ["t0.TXT", "t1.TXT", "t2.TXT"]),
        skipped.HIDDEN: (3, [".git", ".hidden.jsonl", "_z.jsonl"]),
        skipped.DEAD_LINK: (1, ["dead.md"]),
        "ends in .lz4, a compression that is not read: recompress it, e.g. with zstd": (1, ["a.jsonl.lz4"]),
        "no ending": (1, ["README"]),
        skipped.NOT_REGULAR: (1, ["pipe.jsonl"]),
    }


def test_a_million_different_endings_are_few_reasons(folder: Path) -> None:
    for i in range(40):
        (folder / f"x.e{i}").write_text("")
    found = list_files(str(folder), SUFFIXES).skipped.entries()
    assert len(found) <= 22
    assert next(e.n for e in found if e.reason == "other endings") >= 19


def test_links_to_folders_are_followed_and_each_folder_is_read_once(folder: Path, tmp_path_factory: Any) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "deep").mkdir()
    (other / "deep" / "d.jsonl").write_text("{}\n")
    (other / "deep" / "back").symlink_to(folder)
    (folder / "a_link").symlink_to(other)
    (folder / "loop").symlink_to(folder)
    (folder / "sub" / "up").symlink_to("..")
    (folder / "again").symlink_to("sub")
    assert names(folder, "") == ["a.jsonl", "a_link/deep/d.jsonl", "b.jsonl", "sub/c.jsonl.gz"]
    seen = passed(folder, "")[skipped.SEEN_FOLDER]
    assert seen == (4, ["again", "loop", "sub/up"])
    assert names(folder, "**/*.jsonl") == ["_z.jsonl", "a.jsonl", "a_link/deep/d.jsonl", "b.jsonl"]


def test_a_link_to_nothing_ends_the_run_where_it_might_be_input(folder: Path) -> None:
    for name in ("broken.jsonl", "shard"):
        (folder / "sub" / name).symlink_to(folder / "nowhere")
        with pytest.raises(UsageError, match=rf"cannot be read: .*sub/{name}: a link to nothing"):
            names(folder, "")
        with pytest.raises(UsageError, match=rf"a link to nothing: .*sub/{name}"):
            names(folder, f"sub/{name}")
        (folder / "sub" / name).unlink()


def test_a_folder_or_file_without_permission_ends_the_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests may run as root, whom permissions do not stop: what the system would say is said for it."""
    scan, access = os.scandir, os.access

    def scandir(path: str) -> Any:
        if str(path).endswith("sub"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(UsageError, match=r"cannot be read: .*/sub: Permission denied"):
        names(folder, "")
    with pytest.raises(UsageError, match=r"cannot be read: .*/sub: Permission denied"):
        names(folder, "**/*.gz")
    monkeypatch.setattr(os, "scandir", scan)
    monkeypatch.setattr(
        os, "access", lambda path, *_, **__: not str(path).endswith("b.jsonl") and access(path, os.R_OK)
    )
    with pytest.raises(UsageError, match=r"cannot be read: .*/b.jsonl: Permission denied"):
        names(folder, "")


def test_outputs_of_tamis_are_skipped_unless_they_are_named(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "part.jsonl").write_text("{}\n")
    make_run_dir(run_dir_path(folder / "out"))
    (folder / "inside" / "_tamis").mkdir(parents=True)
    (folder / "inside" / "part.jsonl").write_text("{}\n")
    make_run_dir(folder / "inside" / "_tamis")
    assert names(folder, "") == ["a.jsonl", "b.jsonl", "sub/c.jsonl.gz"]
    assert passed(folder, "")[skipped.OTHER_OUTPUT] == (2, ["inside", "out"])
    assert names(folder, "out") == names(folder, "o*") == names(folder, "o*/*.jsonl") == ["out/part.jsonl"]
    assert names(folder, "i*/*") == ["inside/part.jsonl"]
    with pytest.raises(UsageError, match="nothing matches"):
        names(folder, "**/q*")


def test_run_directories_are_never_input_unless_they_are_named(folder: Path) -> None:
    run_dir = make_run_dir(folder / "out.tamis")
    (folder / "data.tamis").mkdir()
    (folder / "data.tamis" / "d.jsonl").write_text("{}\n")
    data = ["a.jsonl", "b.jsonl", "data.tamis/d.jsonl", "sub/c.jsonl.gz"]
    assert names(folder, "") == data
    assert names(folder, "*/d*") == names(folder, "d*/*") == ["data.tamis/d.jsonl"]
    with pytest.raises(UsageError, match="nothing matches"):
        names(folder, "*/*/*.jsonl")
    assert names(folder, "out.tamis/quarantine") == names(folder, "*.tamis/q*") == ["out.tamis/quarantine/q.jsonl"]
    run_dir.rename(folder / "old")
    assert "old/quarantine/q.jsonl" in names(folder, "")  # no run began: it has no plan
    (folder / "old" / "plan.json").write_text("{}")
    assert names(folder, "") == data


def test_the_own_output_is_never_input(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "part.jsonl").write_text("{}\n")
    (folder / "again").symlink_to("out")
    for path in ("", "*", "**/*.jsonl"):
        found = list_files(str(folder / path), SUFFIXES, leave_out=[str(folder / "out")])
        assert not any("part" in p for p in found.paths)
        assert skipped.OWN_OUTPUT in passed(folder, path, leave_out=("out",))
    for path in ("out", "again", "out/part.jsonl", "out/*"):
        with pytest.raises(RunConflict, match="the output folder"):
            list_files(str(folder / path), SUFFIXES, leave_out=[str(folder / "out")])


def test_names_that_are_not_utf8_are_names_like_others(folder: Path) -> None:
    strange = os.fsencode(folder) + b"/\xff\xfe.jsonl"
    with open(strange, "wb") as file:
        file.write(b"{}\n")
    found = list_files(str(folder), SUFFIXES)
    assert os.fsencode(found.paths[-1]) == strange


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


def test_other_schemes_are_refused() -> None:
    with pytest.raises(UsageError, match="gs://bucket/x: gs:// is not read"):
        list_files("gs://bucket/x", SUFFIXES)


def test_a_pattern_below_a_link_that_leads_nowhere_cannot_be_read(folder: Path) -> None:
    (folder / "gone").symlink_to(folder / "nowhere")
    with pytest.raises(UsageError, match=r"cannot be read: .*/gone: No such file"):  # nobody gave a scratch folder
        names(folder, "gone/*")


def test_scratch_that_would_be_read_is_refused(folder: Path) -> None:
    """Temporary files of a killed run, or of the passes before, are in it below a name of their own."""
    for name in ("tmp", ".tmp", "out/tmp", "out/_tamis"):
        (folder / name).mkdir(parents=True)
    (folder / "linked").symlink_to("tmp")

    def read(path: str, scratch: str) -> list[str]:
        return names(folder, path, scratch=str(folder / scratch))

    for path, scratch in (
        ("", "tmp"),
        ("", ""),
        ("*", "tmp"),
        ("*", ""),
        ("**/*.jsonl", "tmp"),
        ("sub", "sub"),
        ("t*", "linked"),
    ):
        with pytest.raises(UsageError, match=r"scratch: .* is inside the input: .* begins with a dot"):
            read(path, scratch)
    everything = ["a.jsonl", "b.jsonl", "sub/c.jsonl.gz"]
    assert read("", ".tmp") == read("", "out/tmp") == everything
    assert (
        read("*.jsonl", "") == read("*.jsonl", "tmp") == ["_z.jsonl", *everything[:2]]
    )  # there is nothing but files among these
    assert read("sub", "") == read("sub", "tmp") == everything[2:]


def test_paths_may_come_in_anything_that_can_be_gone_through() -> None:
    assert checked_paths("a", "x") == "a"
    for several in (["b", "a"], ("b", "a"), iter(["b", "a"]), np.array(["b", "a"])):
        assert checked_paths(several, "x") == ["b", "a"]
    assert checked_paths({"b", "a"}, "x") == ["a", "b"]  # a set has another order in every process
    for wrong, told in ((None, "None"), (b"/a", "b'/a'"), ([None], "None"), (True, "True")):
        with pytest.raises(UsageError) as caught:
            checked_paths(wrong, "input_path")
        assert str(caught.value) == f"input_path: expected a path or a list of paths, got {told}"
    with pytest.raises(UsageError, match=r"got 2024; write a name that looks like a number in quotes"):
        checked_paths([2024], "input_path")
