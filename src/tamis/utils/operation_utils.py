"""Temporary files and folders, removed when a block ends."""

from __future__ import annotations

import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


def get_tmp_dir() -> pathlib.Path:
    """Return the folder for temporary files of this user's machine (TMPDIR)."""
    return pathlib.Path(tempfile.gettempdir())


@contextmanager
def make_temporary_dir(
    prefix: str | None = None, target_dir: str | os.PathLike[str] | None = None, delete: bool = True
) -> Iterator[pathlib.Path]:
    """Create a new folder; remove it with its contents at the end of the block unless `delete` is False."""
    path = pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir=_created_folder(target_dir)))
    try:
        yield path
    finally:
        if delete:
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def make_named_temporary_file(
    prefix: str | None = None,
    suffix: str | None = None,
    delete: bool = True,
    target_dir: str | os.PathLike[str] | None = None,
) -> Iterator[pathlib.Path]:
    """Create a new, empty, closed file; remove it at the end of the block unless `delete` is False."""
    handle, name = tempfile.mkstemp(prefix=prefix, suffix=suffix, dir=_created_folder(target_dir))
    os.close(handle)
    path = pathlib.Path(name)
    try:
        yield path
    finally:
        if delete:
            path.unlink(missing_ok=True)


@contextmanager
def make_pipeline_temporary_dir(sub_dir: str | None = None) -> Iterator[pathlib.Path]:
    """Create a temporary folder, in `sub_dir` of the folder for temporary files."""
    with make_temporary_dir(target_dir=_below(sub_dir)) as path:
        yield path


@contextmanager
def make_pipeline_named_temporary_file(sub_dir: str | None = None, suffix: str | None = None) -> Iterator[pathlib.Path]:
    """Create a temporary file, in `sub_dir` of the folder for temporary files."""
    with make_named_temporary_file(suffix=suffix, target_dir=_below(sub_dir)) as path:
        yield path


def _below(sub_dir: str | None) -> pathlib.Path:
    return get_tmp_dir() / sub_dir if sub_dir else get_tmp_dir()


def _created_folder(folder: str | os.PathLike[str] | None) -> str | None:
    if folder is None:
        return None
    os.makedirs(folder, exist_ok=True)
    return os.fspath(folder)
