"""The bins of one sketch, and the set of distinct hashes that later rounds go through. Helpers for `band_keys`."""
# Compiled functions carry their types in the signatures of the kernels; numbers there change from int to int64.
# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

import numpy as np

from tamis.kernels.language.intrinsics import at, put, rotl64
from tamis.kernels.language.jit import helper
from tamis.kernels.sketch._shingles import mix

NONE = np.uint64(0xFFFFFFFFFFFFFFFF)  # of an empty bin; a hash of this value counts as absent
EMPTY = np.int32(0x7FFFFFFF)  # round of an empty bin
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_31, _32 = np.uint64(31), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
ZERO, ONE = np.uint64(0), np.uint64(1)


@helper
def _bin(h, t):
    return np.int64((h & _LOW) * np.uint64(t) >> _32)


@helper
def salt(seed, r):
    """Return the salt that makes the hashes of round r > 0 fresh."""
    return mix(seed + np.uint64(r) * GOLDEN)


@helper
def first_round(bins, t, hashes, k, end):
    """Assign each hash to the bin given by its low half, and keep the smallest one in each bin.

    No branch: one in six would be mispredicted.
    """
    while k < end:
        h = at(hashes, k)
        b = _bin(h, t)
        put(bins, b, min(at(bins, b), h))
        k += 1


@helper
def permutations(bins, t, factors, hashes, k, end):
    """Fill t bins with t multiplications per hash; `factors` holds t odd factors and t summands."""
    while k < end:
        h = at(hashes, k)
        for b in range(t):
            put(bins, b, min(at(bins, b), h * at(factors, b) + at(factors, t + b)))
        k += 1


@helper
def later_round(bins, rounds, t, r, fresh, hashes, k, end):
    """Fill empty bins only; how many."""
    n_filled = 0
    while k < end:
        h = mix(at(hashes, k) + fresh)
        b = _bin(h, t)
        if at(rounds, b) >= r:  # empty, or filled in this round
            n_filled += at(rounds, b) != r
            put(rounds, b, np.int32(r))
            put(bins, b, min(at(bins, b), h))
        k += 1
    return n_filled


@helper
def last_rounds(bins, rounds, t, seed, hashes, first, end):
    """Run rounds t to 2t - 1: each fills the one bin of its number with the smallest of all hashes."""
    for b in range(t):
        if at(rounds, b) < EMPTY:
            continue
        fresh = salt(seed, t + b)
        lowest = at(bins, b)
        for k in range(first, end):
            lowest = min(lowest, mix(at(hashes, k) + fresh))
        put(bins, b, lowest)


@helper
def collect(table, mask, n_most, n_entries, hashes, k, end):
    """Add hashes to a set of mask + 1 slots; its size, or n_most + 1 once it does not fit. Zero is left out."""
    while k < end and n_entries <= n_most:
        h = at(hashes, k)
        k += 1
        slot = np.int64(h & np.uint64(mask))
        while at(table, slot) != h and at(table, slot) != ZERO:
            slot = (slot + 1) & mask
        n_entries += at(table, slot) != h
        put(table, slot, h)
    return n_entries


@helper
def listed(table, mask, hashes):
    """Write the entries of the set to hashes[0:], in the order of the slots; return how many there are."""
    n = 0
    for slot in range(mask + 1):
        put(hashes, n, at(table, slot))
        n += at(table, slot) != ZERO
    return n


@helper
def words(bins, rounds, t, wide):
    """Replace each bin by its value (round, hash) as one word: half of the hash next to the round, or all mixed."""
    for b in range(t):
        r = np.uint64(at(rounds, b))
        h = at(bins, b)
        put(bins, b, h + r * GOLDEN if wide else (r << _32) | (h >> _32))


@helper
def band_key(bins, first, rows, band):
    """Return the key of a band, never 0, which means no document."""
    key = mix(np.uint64(band) + GOLDEN)
    for k in range(first, first + rows):
        key = rotl64(key + at(bins, k) * _P2, _31) * _P1
    key = mix(key)
    return key if key != ZERO else ONE
