"""Compiled kernels are called with checked arguments, from any thread."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tamis.errors import TamisError
from tamis.kernels.language import types
from tamis.kernels.loading import native
from tamis.kernels.records import hash128, json_scan


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
        with pytest.raises(TypeError, match=r"tamis.kernels.records.hash128._sum: "):
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


def test_a_kernel_that_was_not_compiled_is_named() -> None:
    made = native.Kernel(test_arguments_are_checked, types.int64(types.int64), "records")
    native._kernels.remove(made)
    with pytest.raises(TamisError, match=r"test_arguments_are_checked:int64\(int64\) was not compiled with its group"):
        made(1)
