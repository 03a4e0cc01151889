"""Files and folders, local and in fsspec's file system in memory."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import pandas as pd
import pytest

from tamis.errors import MissingExtra, UsageError
from tamis.utils import atomic_io, file_utils
from tamis.utils.client_utils import FSPath, is_remote_url


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, size in (("a.jsonl", 3), ("b.PARQUET", 1), ("sub/c.jsonl", 2), ("sub/deep/d.txt", 9)):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    return tmp_path


@pytest.fixture
def memory() -> Iterator[Any]:
    fs = fsspec.filesystem("memory")
    yield fs
    fs.rm("/", recursive=True)


def test_without_fsspec_the_extra_is_named(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingExtra, match=r"tamis\[fsspec\]"):
        file_utils.is_not_empty(str(tree))


def names(paths: list[str], root: Path) -> list[str]:
    return [str(Path(p).relative_to(root)) for p in paths]


def test_files_under_a_folder(tree: Path) -> None:
    under = file_utils.get_all_file_paths_under
    assert names(under(str(tree)), tree) == ["a.jsonl", "b.PARQUET"]
    assert names(under(str(tree), recurse_subdirectories=True), tree) == [
        "a.jsonl",
        "b.PARQUET",
        "sub/c.jsonl",
        "sub/deep/d.txt",
    ]
    assert names(under(str(tree), True, ["jsonl", ".parquet"]), tree) == ["a.jsonl", "b.PARQUET", "sub/c.jsonl"]
    for name in ("e.jsonl.gz", "f.txt.gz", "g.JSONL.zst", "h"):
        (tree / "sub/deep" / name).touch()
    deep = tree / "sub/deep"
    assert names(under(str(deep), keep_extensions=".jsonl.gz"), deep) == ["e.jsonl.gz"]
    assert names(under(str(deep), keep_extensions=["jsonl.zst", "txt"]), deep) == ["d.txt", "g.JSONL.zst"]
    assert names(under(str(deep), keep_extensions="gz"), deep) == ["e.jsonl.gz", "f.txt.gz"]
    assert names(under(str(deep), keep_extensions=""), deep) == ["h"]
    assert names(under(str(tree / "a.jsonl")), tree) == ["a.jsonl"]
    assert names(under(str(tree / "sub/*.jsonl")), tree) == ["sub/c.jsonl"]
    with pytest.raises(FileNotFoundError):
        under(str(tree / "none"))


def test_files_with_their_sizes(tree: Path) -> None:
    sizes = file_utils.get_all_file_paths_and_size_under
    found = [(Path(p).name, n) for p, n in sizes(str(tree), recurse_subdirectories=True)]
    assert found == [("b.PARQUET", 1), ("c.jsonl", 2), ("a.jsonl", 3), ("d.txt", 9)]
    by_path = [Path(p).name for p, _ in sizes(str(tree), True, sort_by_size=False)]
    assert by_path == ["a.jsonl", "b.PARQUET", "c.jsonl", "d.txt"]


def test_remote_paths_keep_their_protocol(memory: Any) -> None:
    memory.pipe("/bucket/x/a.jsonl", b"1")
    memory.pipe("/bucket/x/b.jsonl", b"22")
    assert file_utils.get_all_file_paths_under("memory://bucket/x") == [
        "memory:///bucket/x/a.jsonl",
        "memory:///bucket/x/b.jsonl",
    ]
    assert file_utils.get_fs("memory://bucket/x").protocol == "memory"
    assert file_utils.is_not_empty("memory://bucket/x")
    file_utils.write_json_file("memory://bucket/y.json", {"a": 1}, memory)
    assert file_utils.read_json_file("memory://bucket/y.json", memory) == {"a": 1}
    path = FSPath(memory, "/bucket/x/b.jsonl")
    assert (path.as_posix(), str(path), repr(path)) == (
        "memory://bucket/x/b.jsonl",
        "/bucket/x/b.jsonl",
        "FSPath('/bucket/x/b.jsonl')",
    )
    assert path.get_bytes_cat_ranges(part_size=1) == b"22"
    with path.open() as file:
        assert file.read() == b"22"


def test_what_is_remote() -> None:
    assert [is_remote_url(u) for u in ("s3://b/a", "gs://b", "/a", "a/b", "file:///a")] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_folders_are_emptied_but_never_a_root(tree: Path) -> None:
    file_utils.create_or_overwrite_dir(str(tree / "sub"))
    assert not file_utils.is_not_empty(str(tree / "sub"))
    file_utils.create_or_overwrite_dir(str(tree / "new/deep"))
    assert (tree / "new/deep").is_dir()
    file_utils.delete_dir(str(tree / "new"))
    assert not (tree / "new").exists()
    file_utils.delete_dir(str(tree / "a.jsonl"))
    assert (tree / "a.jsonl").exists()
    with pytest.raises(UsageError, match="root of a file system"):
        file_utils.delete_dir("/")
    removed: list[str] = []
    store = SimpleNamespace(
        protocol=("s3", "s3a"),
        _strip_protocol=lambda path: path.removeprefix("s3://"),
        exists=lambda path: True,
        isdir=lambda path: True,
        rm=lambda path, recursive: removed.append(path),
    )
    for bucket in ("s3://bucket", "s3://bucket/"):
        with pytest.raises(UsageError, match="is a whole bucket; refused"):
            file_utils.delete_dir(bucket, store)
    file_utils.delete_dir("s3://bucket/folder", store)
    assert removed == ["s3://bucket/folder"]
    with pytest.raises(UsageError, match="not both"):
        file_utils.is_not_empty("/", fs=file_utils.get_fs("/"), storage_options={})


def test_output_modes(tree: Path) -> None:
    fs = file_utils.get_fs(str(tree))
    with pytest.raises(FileExistsError, match="exists already"):
        file_utils.check_output_mode("error", fs, str(tree / "sub"))
    with pytest.raises(NotImplementedError):
        file_utils.check_output_mode("append", fs, str(tree / "sub"))
    with pytest.raises(UsageError, match="expected overwrite, append, error or ignore"):
        file_utils.check_output_mode("maybe", fs, str(tree / "sub"))
    file_utils.check_output_mode("append", fs, str(tree / "sub"), append_mode_implemented=True)
    file_utils.check_output_mode("ignore", fs, str(tree / "made"))
    assert (tree / "made").is_dir()
    assert (tree / "sub/c.jsonl").exists()
    file_utils.check_output_mode("overwrite", fs, str(tree / "sub"))
    assert not (tree / "sub").exists()


def test_columns_that_are_there() -> None:
    frame = pd.DataFrame({"a": [1], "b": [2]})
    assert list(file_utils.pandas_select_columns(frame, ["b", "x"], "f").columns) == ["b"]
    assert file_utils.pandas_select_columns(frame, None, "f") is frame
    assert file_utils.pandas_select_columns(frame, ["x"], "f") is None


def test_options_that_are_refused() -> None:
    file_utils.check_disallowed_kwargs({"a": 1}, ["b"])
    file_utils.check_disallowed_kwargs({"a": 1}, ["a"], raise_error=False)
    with pytest.raises(ValueError, match="cannot be given here: a, b"):
        file_utils.check_disallowed_kwargs({"a": 1, "b": 2, "c": 3}, ["b", "a"])
    with pytest.raises(UsageError, match="unknown file type 'csv'"):
        file_utils.get_default_file_extensions("csv")


@pytest.mark.parametrize("name", ["../out.txt", "/tmp/out.txt"])
def test_archives_stay_in_their_folder(tmp_path: Path, name: str) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as made:
        info = tarfile.TarInfo(name)
        info.size = 1
        made.addfile(info, io.BytesIO(b"x"))
    data.seek(0)
    (tmp_path / "in").mkdir()
    with tarfile.open(fileobj=data) as archive:
        if name.startswith("/"):  # an absolute name becomes one below the folder
            file_utils.tar_safe_extract(archive, str(tmp_path / "in"))
            assert (tmp_path / "in/tmp/out.txt").exists()
        else:
            with pytest.raises(tarfile.OutsideDestinationError):
                file_utils.tar_safe_extract(archive, str(tmp_path / "in"))
    assert not (tmp_path / "out.txt").exists()


def test_json_appears_whole_and_once(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    atomic_io.write_json_atomically(path, {"b": 1, "a": 2}, indent=1)
    assert path.read_text() == '{\n "a": 2,\n "b": 1\n}'
    assert atomic_io.write_json_atomically_if_absent(path, {"c": 3}) is False
    assert json.loads(path.read_text()) == {"a": 2, "b": 1}
    assert atomic_io.write_json_atomically_if_absent(tmp_path / "b.json", {"c": 3}) is True
    with pytest.raises(TypeError):
        atomic_io.write_json_atomically(path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": 2, "b": 1}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json", "b.json"]
    file_utils.write_json_file(str(path), [1], file_utils.get_fs(str(path)))
    assert file_utils.read_json_file(str(path), file_utils.get_fs(str(path))) == [1]
    atomic_io.fsync_directory(tmp_path)
