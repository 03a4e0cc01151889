"""A 128-bit content hash of byte ranges and columns; not cryptographic.

Construction (HASH_VERSION 1). Two families of four 64-bit lanes read the same little-endian 8-byte words w, word k of
each 32-byte stripe going to lane k: m = w * P2; a = rotl(a + m, 31) * P1; b = rotl(b ^ m, 27) * P3. The a-step is
xxHash64's round; the b-step differs in group operation, rotation and factor, so that a difference which cancels in one
family stays in the other. The bytes after the last stripe follow as words, the last one zero-padded. Lanes are merged
by rotated sums, the length is mixed in, and MurmurHash3's 128-bit finalisation (add, fmix64, add) crosses the halves.
Every step is a bijection, so two inputs of the same length that differ in one word only never have the same hash.
Values are part of run identities: any change to them must raise HASH_VERSION.
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.language import types
from tamis.kernels.language.intrinsics import at, load_u64, pointer, put, rotl64
from tamis.kernels.language.jit import helper, kernel
from tamis.kernels.language.types import I64_IN, U8_IN, U64_IN, U64_OUT

HASH_VERSION = 1

Words = NDArray[np.uint64]

P1 = np.uint64(0x9E3779B185EBCA87)
P2 = np.uint64(0xC2B2AE3D27D4EB4F)
P3 = np.uint64(0x165667B19E3779F9)
P4 = np.uint64(0x85EBCA77C2B2AE63)
P5 = np.uint64(0x27D4EB2F165667C5)
M1 = np.uint64(0xFF51AFD7ED558CCD)
M2 = np.uint64(0xC4CEB9FE1A85EC53)
NULL_HI = np.uint64(0x6E756C6C0F1E2D3C)
NULL_LO = np.uint64(0x4B5A69788796A5B4)
_33 = np.uint64(33)


@helper
def _fmix(x):
    x = (x ^ (x >> _33)) * M1
    x = (x ^ (x >> _33)) * M2
    return x ^ (x >> _33)


@helper
def _finish(a, b):
    a += b
    b += a
    a = _fmix(a)
    b = _fmix(b)
    a += b
    return a, b + a


@helper
def _step_a(a, m):
    return rotl64(a + m, np.uint64(31)) * P1


@helper
def _step_b(b, m):
    return rotl64(b ^ m, np.uint64(27)) * P3


@helper
def hash_bytes(buf, size, p, n, seed):
    """Return (hi, lo) of buf[p:p + n); `size` is the whole buffer's, so that loads stay inside."""
    e = p + n
    a0, a1, a2, a3 = seed + P1 + P2, seed + P2, seed, seed - P1
    b0, b1, b2, b3 = seed ^ P3, seed ^ P4, seed ^ P5, seed ^ (P3 + P4)
    while p + 32 <= e:
        m0 = load_u64(buf, p) * P2
        m1 = load_u64(buf, p + 8) * P2
        m2 = load_u64(buf, p + 16) * P2
        m3 = load_u64(buf, p + 24) * P2
        a0, a1, a2, a3 = _step_a(a0, m0), _step_a(a1, m1), _step_a(a2, m2), _step_a(a3, m3)
        b0, b1, b2, b3 = _step_b(b0, m0), _step_b(b1, m1), _step_b(b2, m2), _step_b(b3, m3)
        p += 32
    if p + 8 <= e:
        m = load_u64(buf, p) * P2
        a0, b0 = _step_a(a0, m), _step_b(b0, m)
        p += 8
    if p + 8 <= e:
        m = load_u64(buf, p) * P2
        a1, b1 = _step_a(a1, m), _step_b(b1, m)
        p += 8
    if p + 8 <= e:
        m = load_u64(buf, p) * P2
        a2, b2 = _step_a(a2, m), _step_b(b2, m)
        p += 8
    if p < e:
        word = np.uint64(0)
        if p + 8 <= size:
            word = load_u64(buf, p) & ((np.uint64(1) << np.uint64(8 * (e - p))) - np.uint64(1))
        else:
            for k in range(e - p):
                word |= np.uint64(at(buf, p + k)) << np.uint64(8 * k)
        m = word * P2
        a3, b3 = _step_a(a3, m), _step_b(b3, m)
    a = rotl64(a0, np.uint64(1)) + rotl64(a1, np.uint64(7)) + rotl64(a2, np.uint64(12)) + rotl64(a3, np.uint64(18))
    b = rotl64(b0, np.uint64(5)) + rotl64(b1, np.uint64(17)) + rotl64(b2, np.uint64(29)) + rotl64(b3, np.uint64(43))
    length = np.uint64(n)
    return _finish(a ^ (length * P5), b + length)


@kernel(types.int64(U8_IN, I64_IN, I64_IN, types.uint64, U64_OUT, U64_OUT))
def _hash_spans(buf, starts, lens, seed, hi, lo):
    """Hash spans of `buf`; return -1, or the first span that is not inside it."""
    source = pointer(buf)
    size = buf.size
    for i in range(starts.size):
        p = at(starts, i)
        n = at(lens, i)
        if p < 0 or n < 0 or n > size - p:
            return i
        h, low = hash_bytes(source, size, p, n, seed)
        put(hi, i, h)
        put(lo, i, low)
    return -1


@helper
def _combine(hi, lo, hi2, lo2, salt):
    a = _step_a(hi + salt * P4, hi2 * P2)
    b = _step_b(lo ^ (salt + P5), lo2 * P2)
    a = _step_a(a, lo2 * P2)
    b = _step_b(b, hi2 * P2)
    return _finish(a, b)


@kernel(types.void(U64_IN, U64_IN, U64_IN, U64_IN, types.uint64, U64_OUT, U64_OUT))
def _combine_rows(hi, lo, hi2, lo2, salt, out_hi, out_lo):
    for i in range(hi.size):
        h, low = _combine(at(hi, i), at(lo, i), at(hi2, i), at(lo2, i), salt)
        put(out_hi, i, h)
        put(out_lo, i, low)


@kernel(types.void(U64_IN, types.uint64, U64_OUT, U64_OUT))
def _hash_words(values, seed, hi, lo):
    for i in range(values.size):
        h, low = _combine(seed + P1, seed ^ P3, at(values, i), np.uint64(8), np.uint64(0))
        put(hi, i, h)
        put(lo, i, low)


@kernel(types.void(U64_IN, U64_IN, U64_OUT))
def _sum(hi, lo, total):
    high = np.uint64(0)
    low = np.uint64(0)
    for i in range(hi.size):
        value = at(lo, i)
        low += value
        high += at(hi, i) + (np.uint64(1) if low < value else np.uint64(0))
    put(total, 0, high)
    put(total, 1, low)


def hash_spans(
    buf: NDArray[np.uint8], starts: NDArray[np.int64], lens: NDArray[np.int64], seed: int = 0
) -> tuple[Words, Words]:
    """Return (hi, lo) of every buf[starts[i]:starts[i] + lens[i])."""
    starts, lens = np.ascontiguousarray(starts, np.int64), np.ascontiguousarray(lens, np.int64)
    if starts.size != lens.size:
        raise ValueError(f"hash_spans: expected as many lengths as starts, got {lens.size} and {starts.size}")
    hi, lo = _pair(starts.size)
    bad = int(_hash_spans(buf, starts, lens, np.uint64(seed), hi, lo))
    if bad >= 0:
        raise ValueError(
            f"hash_spans: span {bad} ({starts[bad]}, {lens[bad]} bytes) is outside the {buf.size} bytes given"
        )
    return hi, lo


def hash_arrow_strings(
    offsets: NDArray[np.int32] | NDArray[np.int64],
    data: NDArray[np.uint8],
    validity: NDArray[np.bool_] | None,
    seed: int = 0,
) -> tuple[Words, Words]:
    """Return (hi, lo) of every value of an Arrow string column (buffers.py); null has its own constant."""
    starts, lens = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    null = np.zeros(lens.size, bool) if validity is None else ~validity
    if null.size != lens.size:
        raise ValueError(f"hash_arrow_strings: expected validity for {lens.size} rows, got {null.size}")
    starts[null] = lens[null] = 0
    hi, lo = hash_spans(data, starts, lens, seed)
    hi[null], lo[null] = NULL_HI, NULL_LO
    return hi, lo


def hash_fixed(values: Words, seed: int = 0) -> tuple[Words, Words]:
    """Return (hi, lo) of 64-bit values, the bits of a fixed-width column."""
    hi, lo = _pair(values.size)
    _hash_words(np.ascontiguousarray(values, np.uint64), np.uint64(seed), hi, lo)
    return hi, lo


def combine(hi: Words, lo: Words, hi2: Words, lo2: Words, salt: int = 0) -> tuple[Words, Words]:
    """Return (hi, lo) of ordered pairs: row hashes over several columns. `salt` separates columns or purposes."""
    if not hi.size == lo.size == hi2.size == lo2.size:
        raise ValueError(f"combine: expected equal lengths, got {hi.size}, {lo.size}, {hi2.size} and {lo2.size}")
    out_hi, out_lo = _pair(hi.size)
    first, second = np.ascontiguousarray(hi), np.ascontiguousarray(lo)
    third, fourth = np.ascontiguousarray(hi2), np.ascontiguousarray(lo2)
    _combine_rows(first, second, third, fourth, np.uint64(salt), out_hi, out_lo)
    return out_hi, out_lo


def mix_rows(hi: Words, lo: Words, ordinal: NDArray[np.int64] | int) -> tuple[Words, Words]:
    """Return identities of derived records: child number `ordinal` (one for all, or one per row) of each parent."""
    numbers = np.broadcast_to(np.asarray(ordinal, np.int64), hi.shape).astype(np.uint64)
    return combine(hi, lo, *hash_fixed(numbers), salt=0x6368696C64)


def sum128(hi: Words, lo: Words, rows: NDArray[np.int64] | NDArray[np.bool_] | None = None) -> int:
    """Sum modulo 2**128 over all rows or the selected ones: the same in any order, different when a row is lost."""
    if rows is not None:
        hi, lo = hi[rows], lo[rows]
    total = np.empty(2, np.uint64)
    _sum(np.ascontiguousarray(hi), np.ascontiguousarray(lo), total)
    return (int(total[0]) << 64) | int(total[1])


def _pair(n: int) -> tuple[Words, Words]:
    return np.empty(n, np.uint64), np.empty(n, np.uint64)
