"""Numba policy: eager, cached in the private folder, and working where no folder is usable."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from numba import types

from tamis.kernels import _jit
from tamis.kernels.cache import mark_ready


def test_kernels_are_compiled_when_decorated_and_only_for_their_signatures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_jit, "cache_dir", lambda group: None)

    @_jit.kernel(types.int64(_jit.I64_IN))
    def first(values):  # type: ignore[no-untyped-def]
        return values[0]

    assert len(first.signatures) == 1
    assert first(np.array([7, 8])) == 7
    read_only = np.array([9])
    read_only.flags.writeable = False
    assert first(read_only) == 9
    with pytest.raises(TypeError, match="No matching definition"):
        first(np.array([1.5]))


def test_the_cache_setting_of_other_numba_code_is_left_alone() -> None:
    before = numba.config.CACHE_DIR

    @_jit.kernel(types.int64(types.int64))
    def same(value):  # type: ignore[no-untyped-def]
        return value

    assert same(3) == 3
    assert before == numba.config.CACHE_DIR


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from numba import types
from tamis.kernels._jit import kernel

@kernel(types.int64(types.int64))
def double(value):
    return 2 * value

print(double(21), sum(double.stats.cache_hits.values()), sum(double.stats.cache_misses.values()))
"""


def run_script(tmp_path: Path, cache_folder: Path) -> str:
    script = tmp_path / "script.py"
    if not script.exists():
        script.write_text(SCRIPT)
    source = str(Path(_jit.__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, str(script), source],
        env={**os.environ, "TAMIS_CACHE_DIR": str(cache_folder)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_second_process_takes_machine_code_from_the_cache(tmp_path: Path) -> None:
    assert run_script(tmp_path, tmp_path / "cache") == "42 0 1\n"
    assert run_script(tmp_path, tmp_path / "cache") == "42 1 0\n"


def test_without_a_usable_folder_kernels_still_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for _ in range(2):
        assert run_script(tmp_path, tmp_path / "file") == "42 0 1\n"


@pytest.mark.parametrize("ready", [False, True])
@pytest.mark.parametrize("how", ["cut", "gone"])
def test_damaged_entries_are_compiled_again(tmp_path: Path, ready: bool, how: str) -> None:
    """Also where the folder says that everything is there, so that numba was told less than it takes to compile."""
    run_script(tmp_path, tmp_path / "cache")
    entries = list((tmp_path / "cache").rglob("*.nb*"))
    assert len(entries) == 2
    for entry in entries:
        if how == "cut":
            entry.write_bytes(entry.read_bytes()[:20])
        else:
            entry.unlink()
    for folder in (tmp_path / "cache").glob("kernels-*"):
        if ready:
            mark_ready(folder)
    assert run_script(tmp_path, tmp_path / "cache") == "42 0 1\n"
    assert run_script(tmp_path, tmp_path / "cache") == "42 1 0\n"
