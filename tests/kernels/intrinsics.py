"""The loads, stores and masks that kernels are made of, each compiled by itself.

A script for test_intrinsics.py, not a test: they exist only in a process that compiles.
"""

from __future__ import annotations

import os
import random

import tamis.kernels
from tamis.kernels.building.compile_process import environment
from tamis.kernels.loading.levels import this_level

os.environ.update(environment(this_level()))  # before numba is imported
tamis.kernels.compiling.level = this_level().name

import numba  # noqa: E402
import numpy as np  # noqa: E402

from tamis.kernels.language import intrinsics as op  # noqa: E402

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
        return word, op.rotl64(word, np.uint64(9)), op.lowest_bit(word), op.highest_bit(word), op.count_bits(word)

    out = np.zeros(200, np.uint8)
    for index in (0, 3, 77):
        expected = int.from_bytes(BYTES[index : index + 8].tobytes(), "little")
        word, turned, lowest, highest, count = words(BYTES, out, index)
        assert word == expected
        assert turned == ((expected << 9) | (expected >> 55)) % 2**64
        assert lowest == (expected & -expected).bit_length() - 1
        assert highest == expected.bit_length() - 1
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


def check_the_least() -> None:
    @numba.njit
    def least(array, index):  # type: ignore[no-untyped-def]
        return op.least_of_16(array, index), op.least_of_64(op.pointer(array), index)

    numbers = np.random.default_rng(6).integers(0, 1 << 32, 120).astype(np.uint32)
    for index in range(56):
        assert least(numbers, index) == (numbers[index : index + 16].min(), numbers[index : index + 64].min())


def strings(seed: int) -> bytes:
    """Inside of a JSON string: runs of backslashes, short and long escapes, anything else."""
    rng = random.Random(seed)
    short = [b"\\" + bytes([c]) for c in b'nrtbf"/'] + [b"\\\\"]
    parts = []
    for _ in range(rng.randint(0, 60)):
        kind = rng.random()
        if kind < 0.4:
            parts.append(bytes(rng.choices(b"abcnrtbfu /0123\xc3\xa9", k=rng.choice([1, 2, 5, 30, 64, 90]))))
        elif kind < 0.9:
            parts.append(rng.choice(short) * rng.choice([1, 1, 1, 2, 3, 17, 40]))
        else:
            parts.append(rng.choice([b"\\u0041", b"\\u00e9", b"\\u20AC", b"\\ud83d\\ude00", b"\\ud83d"]))
    return b"".join(parts)


def check_wide_and_narrow_unescape_alike() -> None:
    from tamis.kernels.records import json_text

    @numba.njit
    def narrow(out, buf, p, e):  # type: ignore[no-untyped-def]
        return json_text.unescaped_narrow(op.pointer(out), 0, op.pointer(buf), p, e, buf.size - 64)

    @numba.njit
    def wide(out, buf, p, e):  # type: ignore[no-untyped-def]
        return json_text.unescaped_wide(op.pointer(out), 0, op.pointer(buf), p, e, buf.size - 64)

    for seed in range(400):
        inside = strings(seed)
        for behind in (64, 5, 70):
            buf = np.frombuffer(b"x" * 64 + inside + b'"' * behind, np.uint8)
            outs = [np.zeros(len(inside) + 64, np.uint8) for _ in "ab"]
            n = [f(out, buf, 64, 64 + len(inside)) for f, out in zip((narrow, wide), outs, strict=True)]
            assert n[0] == n[1], (seed, behind)
            assert outs[0][: n[0]].tobytes() == outs[1][: n[1]].tobytes(), (seed, behind)


def check_wide_and_narrow_words_alike() -> None:
    from tamis.kernels.text import _words as words

    @numba.njit
    def places(marks, other, base, bits):  # type: ignore[no-untyped-def]
        a = words.put_places_narrow(op.pointer(marks), 3, base, bits)
        return a, words.put_places_wide(op.pointer(other), 3, base, bits)

    rng = random.Random(1)
    for kind in (np.int32, np.int64):
        for n_bits in range(65):
            bits = sum(1 << k for k in rng.sample(range(64), n_bits))
            marks, other = np.zeros(80, kind), np.zeros(80, kind)
            assert places(marks, other, 1000, np.uint64(bits)) == (3 + n_bits, 3 + n_bits)
            assert marks[: 3 + n_bits].tolist() == other[: 3 + n_bits].tolist()

    @numba.njit
    def hashes(source, marks, n, out, other):  # type: ignore[no-untyped-def]
        p, m = op.pointer(source), op.pointer(marks)
        a = words.hash_words_narrow(p, source.size, m, n, op.pointer(out), 2)
        return a, words.hash_words_wide(p, source.size, m, n, op.pointer(other), 2)

    for n in range(60):
        lengths = [rng.choice([1, 2, 5, 7, 8, 9, 15, 16, 17, 18, 40]) for _ in range(n)]
        source = np.frombuffer(rng.randbytes(sum(lengths) + n), np.uint8)
        ends = np.cumsum([length + 1 for length in lengths]).astype(np.int64) - 1
        marks = np.stack([ends - lengths, ends], axis=1).reshape(-1) if n else np.zeros(0, np.int64)
        out, other = np.zeros(n + 10, np.uint64), np.zeros(n + 10, np.uint64)
        assert hashes(source, np.ascontiguousarray(marks), n, out, other) == (n + 2, n + 2)
        assert out[: n + 2].tolist() == other[: n + 2].tolist()


if __name__ == "__main__":
    from tamis.kernels.language.vectors import HAS_COMPRESS, HAS_PRODUCTS

    if HAS_COMPRESS and HAS_PRODUCTS:  # elsewhere the narrow ones are compiled, and tested with the kernels
        check_wide_and_narrow_unescape_alike()
        check_wide_and_narrow_words_alike()
    check_masks()
    check_loads_stores_and_bits()
    check_copies()
    check_the_least()
    print("as they should")
