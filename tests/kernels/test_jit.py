"""Kernels are compiled by a process of their own, kept, loaded without numba, and called with checked arguments."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from tamis.errors import TamisError
from tamis.kernels import _jit, _types, cache, hash128, json_scan, native

SOURCE = str(Path(_jit.__file__).resolve().parents[2])


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    merged = {**os.environ, "PYTHONPATH": SOURCE + os.pathsep + os.environ.get("PYTHONPATH", ""), **environment}
    return subprocess.run([sys.executable, "-c", code], env=merged, capture_output=True, text=True, check=False)


def test_loading_and_calling_does_not_import_numba() -> None:
    code = (
        "import sys; from tamis.kernels.groups import all_groups, load_all\n"
        "for group in all_groups(): load_all(group)\n"
        "import numpy as np; from tamis.kernels.hash128 import sum128\n"
        "print(sum128(np.array([1], np.uint64), np.array([2], np.uint64)), 'numba' in sys.modules)"
    )
    done = python(code)
    assert (done.stdout, done.stderr) == (f"{(1 << 64) + 2} False\n", "")


def test_arguments_are_checked() -> None:
    """Machine code believes what it is told: an array of another kind would be read beyond its end."""
    words, out = np.arange(3, dtype=np.uint64), np.zeros(2, np.uint64)
    hash128._sum(words, words, out)
    assert out.tolist() == [3, 3]
    read_only = words.copy()
    read_only.flags.writeable = False
    hash128._sum(read_only, words, out)
    wrong: list[tuple[object, ...]] = [
        (words, words),
        (words, words, out, out),
        (words.astype(np.int64), words, out),
        (words.astype(">u8"), words, out),
        (words[::2], words, out),
        (words.reshape(1, 3), words, out),
        ([1, 2, 3], words, out),
        (None, words, out),
        (words, words, read_only),
    ]
    for arguments in wrong:
        with pytest.raises(TypeError, match=r"tamis.kernels.hash128._sum: "):
            hash128._sum(*arguments)
    block = np.zeros(64, np.uint8)
    with pytest.raises(TypeError):
        json_scan.count_lines(block, 1.5)
    assert json_scan.count_lines(block, np.int64(3)) == json_scan.count_lines(block, 3) == 1


def test_addresses_are_those_that_arrays_tell() -> None:
    whole = np.arange(1000, dtype=np.int64)
    for array in (whole, whole[3:], whole[:0], np.empty(0, np.uint8), np.frombuffer(b"abc", np.uint8)):
        assert native._address(array) == array.ctypes.data


def test_kernels_run_side_by_side() -> None:
    values = np.random.default_rng(1).integers(0, 1 << 63, 200_000).astype(np.uint64)
    expected = hash128.sum128(values, values)
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.extend(hash128.sum128(values, values) for _ in range(20)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 80


# -- a group of its own, in a copy of the package without the other kernels ------------------------------------------------
KERNELS = """
from tamis.kernels import _types as types
from tamis.kernels._jit import helper, kernel

@helper
def twice(x):
    return 2 * x

@kernel(
    types.void(
        *(types.F64_OUT, types.boolean, types.uint8, types.uint16, types.uint32, types.uint64, types.int32, types.int64),
        *(types.float32, types.float64, types.U16_IN, types.I32_IN),
    )
)
def collect(out, a, b, c, d, e, f, g, h, i, words, numbers):
    out[0], out[1], out[2], out[3], out[4] = a, twice(b), twice(c), twice(d), e
    out[5], out[6], out[7], out[8] = twice(f), twice(g), twice(h), twice(i)
    out[9], out[10], out[11] = words[words.size - 1], numbers[0], numbers.size

@kernel(types.boolean(types.int64))
def is_odd(x):
    return x % 2 == 1

@kernel(types.int64(types.int64))
def minus(x):
    return -x
"""
CALLS = """
import numpy as np
from tamis.kernels import native
compile, native._compiled = native._compiled, lambda group: print("compiles", group) or compile(group)
from tamis.kernels.probe.all import collect, is_odd, minus
out, words, numbers = np.zeros(12), np.array([7, 65535], np.uint16), np.array([-5, 6, 7], np.int32)
collect(out, True, 200, 60000, 4_000_000_000, 1 << 63, -7, -(1 << 40), 0.5, -1.25, words, numbers)
print(out.tolist(), is_odd(3), is_odd(4), minus(1 << 62), minus(-3))
"""
NUMBERS = [1, 400, 120000, 8e9, 2.0**63, -14, -(2.0**41), 1.0, -2.5, 65535, -5, 3]
ANSWER = f"{[float(x) for x in NUMBERS]} True False {-(1 << 62)} 3\n"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    kernels = tmp_path / "package" / "tamis" / "kernels"
    (kernels / "probe").mkdir(parents=True)
    (kernels.parent / "__init__.py").write_text("")
    (kernels.parent / "errors.py").write_text(Path(SOURCE, "tamis", "errors.py").read_text())
    for name in ("__init__", "_entries", "_jit", "_types", "cache", "compile", "groups", "native"):
        (kernels / f"{name}.py").write_text(Path(SOURCE, "tamis", "kernels", f"{name}.py").read_text())
    (kernels / "probe" / "__init__.py").write_text("")
    (kernels / "probe" / "all.py").write_text(KERNELS)
    return tmp_path / "package"


def call(package: Path, base: Path) -> str:
    done = python(CALLS, PYTHONPATH=str(package), TAMIS_CACHE_DIR=str(base))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_every_kind_of_number_arrives_and_machine_code_is_kept(package: Path, tmp_path: Path) -> None:
    assert call(package, tmp_path / "cache") == "compiles probe\n" + ANSWER
    assert call(package, tmp_path / "cache") == ANSWER


@pytest.mark.parametrize("how", ["cut", "changed", "gone"])
def test_damaged_machine_code_is_not_run_but_compiled_again(package: Path, tmp_path: Path, how: str) -> None:
    call(package, tmp_path / "cache")
    (path,) = (tmp_path / "cache").glob(f"kernels-*/{native.FILE}")
    data = path.read_bytes()
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(
            data[: len(data) // 2] if how == "cut" else data[:-500] + bytes([data[-500] ^ 255]) + data[-499:]
        )
    assert call(package, tmp_path / "cache") == "compiles probe\n" + ANSWER
    assert call(package, tmp_path / "cache") == ANSWER


def test_without_a_usable_folder_kernels_still_work(package: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert call(package, tmp_path / "file") == "compiles probe\n" + ANSWER


def test_a_kernel_that_was_not_compiled_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    made = native.Kernel(test_arguments_are_checked, _types.int64(_types.int64), "")
    native._kernels.remove(made)
    with pytest.raises(TamisError, match=r"test_arguments_are_checked.* was not compiled with its group"):
        made(1)


def test_what_cannot_be_compiled_says_why(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys; from tamis.kernels import native\n"
        "subprocess.run = lambda command, **k: subprocess.CompletedProcess(command, 1, '', 'numba is missing')\n"
        "native.library('')"
    )
    done = python(code, TAMIS_CACHE_DIR=str(tmp_path))
    assert "kernels cannot be compiled: numba is missing" in done.stderr
    assert not cache.kernels_are_cached(["no such group"])
