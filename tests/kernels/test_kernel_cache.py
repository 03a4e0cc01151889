"""The private cache folder: keyed, private, pruned, and never needed for correctness."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tamis.kernels import cache

SOURCE = str(Path(cache.__file__).resolve().parents[2])


def python(code: str, **environment: str) -> str:
    """Output of `code` in a fresh process."""
    merged = {**os.environ, "PYTHONPATH": SOURCE + os.pathsep + os.environ.get("PYTHONPATH", ""), **environment}
    done = subprocess.run([sys.executable, "-c", code], env=merged, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_folder_is_private_and_keyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAMIS_CACHE_DIR", str(tmp_path / "new" / "base"))
    folder = cache.cache_dir()
    assert folder == tmp_path / "new" / "base" / f"kernels-{cache.cache_key()}"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert cache.cache_dir() == folder


def test_ready_only_after_marking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAMIS_CACHE_DIR", str(tmp_path))
    assert not cache.kernels_are_cached()
    folder = cache.cache_dir()
    assert folder is not None
    cache.mark_ready(folder)
    assert cache.kernels_are_cached()
    assert [entry.name for entry in folder.iterdir()] == ["READY"]


def test_xdg_then_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAMIS_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    name = f"kernels-{cache.cache_key()}"
    assert cache.cache_dir() == tmp_path / "xdg" / "tamis" / name
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache.cache_dir() == tmp_path / "home" / ".cache" / "tamis" / name


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_folder_writable_by_others_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    monkeypatch.setenv("TAMIS_CACHE_DIR", str(tmp_path))
    folder = cache.cache_dir()
    assert folder is not None
    folder.chmod(mode)
    assert cache.cache_dir() is None
    assert not cache.kernels_are_cached()


def test_folder_of_another_user_or_a_link_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAMIS_CACHE_DIR", str(tmp_path))
    folder = cache.cache_dir()
    assert folder is not None
    owner = os.geteuid()
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: owner + 1)
        assert cache.cache_dir() is None
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert cache.cache_dir() is None


def test_base_that_cannot_be_made_gives_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TAMIS_CACHE_DIR", str(tmp_path / "file" / "base"))
    assert cache.cache_dir() is None


def test_old_folders_are_pruned_when_a_new_one_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAMIS_CACHE_DIR", str(tmp_path))
    for age in range(cache.N_FOLDERS_KEPT + 2):
        old = tmp_path / f"kernels-old{age}"
        old.mkdir(mode=0o700)
        os.utime(old, (1_000_000 - age, 1_000_000 - age))
    (tmp_path / "other").mkdir()
    assert cache.cache_dir() is not None
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(
        [f"kernels-{cache.cache_key()}", *(f"kernels-old{age}" for age in range(cache.N_FOLDERS_KEPT - 1)), "other"]
    )


def test_cache_module_does_not_import_numba() -> None:
    code = "import sys, tamis.kernels.cache as c; c.kernels_are_cached(); print('numba' in sys.modules, 'numpy' in sys.modules)"
    assert python(code) == "False False\n"


def test_each_group_has_a_folder_of_its_own_and_its_own_readiness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAMIS_CACHE_DIR", str(tmp_path))
    engine, text = cache.cache_dir(), cache.cache_dir("text")
    assert engine is not None
    assert text is not None
    assert engine != text
    cache.mark_ready(engine)
    assert cache.kernels_are_cached([""])
    assert not cache.kernels_are_cached(["", "text"])
    cache.mark_ready(text)
    assert cache.kernels_are_cached(["", "text"])
