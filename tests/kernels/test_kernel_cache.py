"""The private folder for kernels compiled on this machine: ours alone, pruned, and never needed for correctness."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tamis.kernels.loading import cache


def test_the_folder_is_private_and_one_per_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAMIS_CACHE_DIR", str(tmp_path / "new" / "base"))
    assert cache.folder("v2") is None
    folder = cache.new_folder("v2")
    assert folder == tmp_path / "new" / "base" / "kernels-v2"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert cache.folder("v2") == cache.new_folder("v2") == folder
    assert cache.folder("v3") is None


def test_xdg_then_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAMIS_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache.new_folder("v2") == tmp_path / "xdg" / "tamis" / "kernels-v2"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache.new_folder("v2") == tmp_path / "home" / ".cache" / "tamis" / "kernels-v2"


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_folder_writable_by_others_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    monkeypatch.setenv("TAMIS_CACHE_DIR", str(tmp_path))
    folder = cache.new_folder("v2")
    assert folder is not None
    folder.chmod(mode)
    assert cache.folder("v2") is None
    assert cache.new_folder("v2") is None


def test_a_folder_that_others_could_swap_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAMIS_CACHE_DIR", str(tmp_path / "base"))
    (tmp_path / "base").mkdir()
    for mode, is_used in ((0o777, False), (0o775, False), (0o1777, True), (0o755, True)):
        (tmp_path / "base").chmod(mode)
        assert (cache.new_folder("v2") is not None) == is_used, oct(mode)


def test_folder_of_another_user_or_a_link_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAMIS_CACHE_DIR", str(tmp_path))
    folder = cache.new_folder("v2")
    assert folder is not None
    owner = os.geteuid()
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: owner + 1)
        assert cache.folder("v2") is None
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert cache.folder("v2") is None


def test_base_that_cannot_be_made_gives_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TAMIS_CACHE_DIR", str(tmp_path / "file" / "base"))
    assert cache.new_folder("v2") is None


def test_old_libraries_go_when_there_are_too_many(tmp_path: Path) -> None:
    for age in range(cache.N_FILES_KEPT + 2):
        old = tmp_path / f"text-{age}.so"
        old.write_bytes(b"")
        os.utime(old, (1_000_000 - age, 1_000_000 - age))
    (tmp_path / "unicode").write_bytes(b"no library")
    cache.keep(tmp_path / "text-new.so", b"new")
    assert (tmp_path / "text-new.so").read_bytes() == b"new"
    kept = ["text-new.so", *(f"text-{age}.so" for age in range(cache.N_FILES_KEPT - 1)), "unicode"]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(kept)
