"""The loads, stores and masks that kernels are made of, each compiled by itself.

A script for test_intrinsics.py, not a test: they exist only in a process that compiles.
"""

from __future__ import annotations

import numba
import numpy as np

import tamis.kernels

tamis.kernels.compiling = frozenset()
from tamis.kernels import _intrinsics as op  # noqa: E402 - after that

BYTES = np.random.default_rng(5).integers(0, 256, 200).astype(np.uint8)


def bits(mask: int) -> list[int]:
    return [k for k in range(64) if int(mask) >> k & 1]


def check_masks() -> None:
    @numba.njit
    def masks(array, index, byte):  # type: ignore[no-untyped-def]
        p = op.pointer(array)
        return op.mask_eq(p, index, byte), op.mask_lt(p, index, byte), op.mask_ge(array, index, byte)

    for index in (0, 1, 63, 136):
        block = BYTES[index : index + 64]
        for byte in (0, 10, 34, 127, 128, 200, 255):
            equal, below, above = masks(BYTES, index, np.uint8(byte))
            assert bits(equal) == np.flatnonzero(block == byte).tolist()
            assert bits(below) == np.flatnonzero(block < byte).tolist()
            assert bits(above) == np.flatnonzero(block >= byte).tolist()


def check_loads_stores_and_bits() -> None:
    @numba.njit
    def words(array, out, index):  # type: ignore[no-untyped-def]
        word = op.load_u64(array, index)
        op.store_u64(out, index + 1, word)
        op.put(out, 0, op.at(array, index))
        return word, op.rotl64(word, np.uint64(9)), op.lowest_bit(word), op.count_bits(word)

    out = np.zeros(200, np.uint8)
    for index in (0, 3, 77):
        expected = int.from_bytes(BYTES[index : index + 8].tobytes(), "little")
        word, turned, lowest, count = words(BYTES, out, index)
        assert word == expected
        assert turned == ((expected << 9) | (expected >> 55)) % 2**64
        assert lowest == (expected & -expected).bit_length() - 1
        assert count == expected.bit_count()
        assert out[index + 1 : index + 9].tobytes() == BYTES[index : index + 8].tobytes()
        assert out[0] == BYTES[index]


def check_copies() -> None:
    @numba.njit
    def copies(out, array):  # type: ignore[no-untyped-def]
        op.copy_block(out, 3, array, 5)
        op.copy_bytes(out, 100, array, 50, 13)

    out = np.zeros(200, np.uint8)
    copies(out, BYTES)
    expected = np.zeros(200, np.uint8)
    expected[3:67], expected[100:113] = BYTES[5:69], BYTES[50:63]
    assert out.tolist() == expected.tolist()


if __name__ == "__main__":
    check_masks()
    check_loads_stores_and_bits()
    check_copies()
    print("as they should")
