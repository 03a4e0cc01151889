"""Where libraries of kernels are looked for, by what name, and which are refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tamis.errors import TamisError
from tamis.kernels.loading import cache, library, native
from tamis.kernels.loading.levels import this_level
from tamis.kernels.loading.library import all_groups

SOURCE = str(library.HERE.parents[1])


def python(code: str, **environment: str) -> str:
    """Output of `code` in a fresh process."""
    merged = {**os.environ, "PYTHONPATH": SOURCE + os.pathsep + os.environ.get("PYTHONPATH", ""), **environment}
    done = subprocess.run([sys.executable, "-c", code], env=merged, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No library anywhere: neither beside the sources nor in the user's folder."""
    monkeypatch.setenv("TAMIS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(library, "BUILT", tmp_path / "built")
    return tmp_path


def test_a_library_is_found_next_to_the_sources_before_the_users_folder(nowhere: Path) -> None:
    level = this_level()
    assert library.find("text") is None
    folder = cache.new_folder(level.name)
    assert folder is not None
    (folder / library.file_name("text")).write_bytes(b"")
    assert library.find("text") == folder / library.file_name("text")
    (library.BUILT / level.name).mkdir(parents=True)
    (library.BUILT / level.name / library.file_name("text")).write_bytes(b"")
    assert library.find("text") == library.BUILT / level.name / library.file_name("text")


def test_ready_means_all_groups_that_were_requested(nowhere: Path) -> None:
    folder = cache.new_folder(this_level().name)
    assert folder is not None
    assert not library.are_ready()
    (folder / library.file_name("records")).write_bytes(b"")
    assert library.are_ready()
    assert not library.are_ready(["records", "text"])


def test_python_bodies_need_no_library(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAMIS_KERNELS", "python")
    assert library.are_ready(all_groups())


def test_an_edited_source_has_another_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "kernels"
    shutil.copytree(library.HERE, copy, ignore=shutil.ignore_patterns("built", "__pycache__"))
    monkeypatch.setattr(library, "HERE", copy)

    def keys() -> list[str]:
        library.source_key.cache_clear()
        return [library.source_key(group) for group in ("records", "text", "sketch")]

    try:
        before = keys()
        assert len(set(before)) == 3
        for path, changed in [
            ("records/hash128.py", [True, True, True]),  # needed by all, which may call it
            ("language/jit.py", [True, True, True]),
            ("building/codegen.py", [True, True, True]),
            ("text/url_stats.py", [False, True, False]),
            ("text/_unicode.py", [False, True, True]),  # helpers with an underscore go into other groups too
            ("sketch/sorting.py", [False, False, True]),
            ("loading/native.py", [False, False, False]),  # no machine code is made of it
        ]:
            source = copy / path
            source.write_text(source.read_text() + "# edited\n")
            after = keys()
            assert [a != b for a, b in zip(before, after, strict=True)] == changed, path
            before = after
    finally:
        library.source_key.cache_clear()


@pytest.mark.parametrize("how", ["cut", "changed", "empty"])
def test_a_damaged_library_is_not_loaded(nowhere: Path, how: str) -> None:
    """Of the user's folder it is removed, and compiled again; of a package it is named."""
    whole = library.signed(b"machine code" * 100)
    damaged = {"cut": whole[:-5], "changed": whole[:7] + b"X" + whole[8:], "empty": b""}[how]
    folder = cache.new_folder(this_level().name)
    assert folder is not None
    path = folder / library.file_name("text")
    path.write_bytes(whole)
    assert library.is_whole(path)
    path.write_bytes(damaged)
    assert not library.is_whole(path)
    assert native._stored("text") is None
    assert not path.exists()
    shipped = library.BUILT / this_level().name / library.file_name("text")
    shipped.parent.mkdir(parents=True)
    shipped.write_bytes(damaged)
    with pytest.raises(TamisError, match=r"is damaged; install tamis again"):
        native._stored("text")
    assert shipped.exists()


def test_looking_for_libraries_imports_nothing_heavy() -> None:
    code = (
        "import sys, tamis.kernels.loading.library as library; library.are_ready(); "
        "print([name for name in ('numba', 'numpy', 'llvmlite', 'ctypes') if name in sys.modules])"
    )
    assert python(code) == "[]\n"


def test_loading_and_calling_every_kernel_imports_neither_numba_nor_llvm() -> None:
    code = (
        "import sys\nfrom tamis.kernels.loading.library import all_groups\n"
        "from tamis.kernels.loading.native import load_all\n"
        "for group in all_groups(): load_all(group)\n"
        "import numpy as np; from tamis.kernels.records.hash128 import sum128\n"
        "print(sum128(np.array([1], np.uint64), np.array([2], np.uint64)), "
        "'numba' in sys.modules, 'llvmlite' in sys.modules)"
    )
    assert python(code) == f"{(1 << 64) + 2} False False\n"
