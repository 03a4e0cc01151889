"""Sorting of (key, id) pairs, and the edges that runs of equal keys in them represent.

Keys are hashes, so that few of their highest bits decide almost everything. A first pass scatters the pairs by some of
these bits into parts of a few thousand; a second one scatters each part, now in the cache, by enough bits to have more
places than pairs; what is still out of order moves by a place or so. Places with many pairs, which hashes have only
where keys are equal, are sorted from the lowest byte of the id to the highest of the key, without the bytes that do not
vary: so the time is linear for any keys. Twelve passes by single bytes over everything took four times as long.
Memory: another 12 bytes per pair.
"""
# Compiled functions carry their types in the signatures of the kernels; numbers there change from int to int64.
# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tamis.errors import UsageError
from tamis.kernels.language import types
from tamis.kernels.language.intrinsics import at, pointer, put
from tamis.kernels.language.jit import helper, kernel
from tamis.kernels.language.types import I64_OUT, U32_IN, U32_OUT, U64_IN, U64_OUT

N_DIGITS = 12  # bytes of an id, then of a key
PART_BITS, PLACE_BITS = 13, 14  # at most, of the two passes
CROWDED = 24  # pairs in one place that are not left to single moves
_255 = np.uint64(255)
_ONE, _ZERO = np.uint64(1), np.uint64(0)


@helper
def _digit(key, number, d):
    word = np.uint64(number) >> np.uint64(8 * d) if d < 4 else key >> np.uint64(8 * (d - 4))
    return np.int64(word & _255)


@helper
def _sort_bytes(keys, ids, to_keys, to_ids, first, end, counts):
    """Sort [first, end) by bytes, ids first, each pass stable; the other two arrays are scratch in the same places."""
    key_bits = id_bits = _ZERO
    ascending = True
    for k in range(first, end):
        key_bits |= at(keys, k) ^ at(keys, first)
        id_bits |= np.uint64(at(ids, k) ^ at(ids, first))
        ascending = ascending and at(ids, k) >= at(ids, max(k - 1, first))
    moved = False
    for d in range(N_DIGITS):
        if _digit(key_bits, id_bits, d) == 0 or (ascending and d < 4):
            continue
        for c in range(256):
            put(counts, c, 0)
        for k in range(first, end):
            c = _digit(at(keys, k), at(ids, k), d)
            put(counts, c, at(counts, c) + 1)
        total = first
        for c in range(256):
            count = at(counts, c)
            put(counts, c, total)
            total += count
        for k in range(first, end):
            key = at(keys, k)
            number = at(ids, k)
            c = _digit(key, number, d)
            place = at(counts, c)
            put(counts, c, place + 1)
            put(to_keys, place, key)
            put(to_ids, place, number)
        keys, to_keys = to_keys, keys
        ids, to_ids = to_ids, ids
        moved = not moved
    if moved:
        for k in range(first, end):
            put(to_keys, k, at(keys, k))
            put(to_ids, k, at(ids, k))


@helper
def _scatter(keys, ids, to_keys, to_ids, first, end, shift, n_bits, counts):
    """Move [first, end) to the same range, by n_bits of the key from bit `shift` on; the largest number in one place.

    Afterwards counts[c] is where the pairs of c end.
    """
    mask = (_ONE << np.uint64(n_bits)) - _ONE
    right = np.uint64(min(shift, 63))  # 64 only where no bit is looked at
    for c in range(np.int64(mask) + 1):
        put(counts, c, 0)
    for k in range(first, end):
        c = np.int64(at(keys, k) >> right & mask)
        put(counts, c, at(counts, c) + 1)
    total = first
    largest = np.int64(0)
    for c in range(np.int64(mask) + 1):
        count = at(counts, c)
        put(counts, c, total)
        total += count
        largest = max(largest, count)
    for k in range(first, end):
        key = at(keys, k)
        c = np.int64(key >> right & mask)
        place = at(counts, c)
        put(counts, c, place + 1)
        put(to_keys, place, key)
        put(to_ids, place, at(ids, k))
    return largest


@helper
def _settle(keys, ids, first, end):
    """Sort pairs that are nearly in order, by insertion."""
    for k in range(first + 1, end):
        key = at(keys, k)
        number = at(ids, k)
        j = k
        while j > first:
            before = at(keys, j - 1)
            if before < key or (before == key and at(ids, j - 1) <= number):
                break
            put(keys, j, before)
            put(ids, j, at(ids, j - 1))
            j -= 1
        if j < k:
            put(keys, j, key)
            put(ids, j, number)


@helper
def _n_bits(n):
    bits = 0
    while n >> bits > 1:
        bits += 1
    return bits


@kernel(types.void(U64_OUT, U32_OUT, U64_OUT, U32_OUT, I64_OUT, I64_OUT, I64_OUT))
def _sort(keys_out, ids_out, other_keys, other_ids, ends_out, places_out, counts_out):
    keys, ids, to_keys, to_ids = pointer(keys_out), pointer(ids_out), pointer(other_keys), pointer(other_ids)
    ends, places, counts = pointer(ends_out), pointer(places_out), pointer(counts_out)
    n = keys_out.size
    varying = _ZERO
    for k in range(n):
        varying |= at(keys, k) ^ at(keys, 0)
    top = np.int64(0)  # bits up to the highest one that varies
    while varying != _ZERO:
        varying >>= _ONE
        top += 1
    part_bits = min(max(_n_bits(n) - 11, 0), PART_BITS, top)
    _scatter(keys, ids, to_keys, to_ids, 0, n, top - part_bits, part_bits, ends)
    first = np.int64(0)
    for part in range(1 << part_bits):
        end = at(ends, part)
        bits = min(_n_bits(end - first) + 1, PLACE_BITS, top - part_bits)
        largest = _scatter(to_keys, to_ids, keys, ids, first, end, top - part_bits - bits, bits, places)
        begin = first
        for place in range(1 << bits if largest > CROWDED else 0):
            stop = at(places, place)
            if stop - begin > CROWDED:
                _sort_bytes(keys, ids, to_keys, to_ids, begin, stop, counts)
            begin = stop
        _settle(keys, ids, first, end)
        first = end


@kernel(types.int64(U64_IN, U32_IN, U32_OUT, U32_OUT))
def _star_edges(keys, ids, out_a, out_b):
    """Return the number of edges; write as many as there is room for."""
    n_edges = 0
    leader = np.uint32(0)
    for k in range(keys.size):
        number = at(ids, k)
        if k == 0 or at(keys, k) != at(keys, k - 1):
            leader = number
        elif number != at(ids, k - 1):
            if n_edges < out_a.size:
                put(out_a, n_edges, leader)
                put(out_b, n_edges, number)
            n_edges += 1
    return n_edges


def sort_pairs(keys: NDArray[np.uint64], ids: NDArray[np.uint32]) -> None:
    """Sort both arrays in place, by key and then by id."""
    _check("sort_pairs", keys, ids)
    others = np.empty(keys.size, np.uint64), np.empty(ids.size, np.uint32)
    counts = [np.empty(n, np.int64) for n in (1 << PART_BITS, 1 << PLACE_BITS, 256)]
    _sort(keys, ids, *others, *counts)


def star_edges(
    keys_sorted: NDArray[np.uint64],
    ids_sorted: NDArray[np.uint32],
    out_a: NDArray[np.uint32],
    out_b: NDArray[np.uint32],
) -> int:
    """Write an edge (smallest id, other id) for every other id of every run of equal keys; how many.

    The pairs are as `sort_pairs` leaves them. There are fewer edges than pairs; an id twice in a run counts once.
    """
    _check("star_edges", keys_sorted, ids_sorted)
    if out_a.size != out_b.size:
        raise UsageError(f"star_edges: expected outputs of equal length, got {out_a.size} and {out_b.size}")
    n_edges = int(_star_edges(keys_sorted, ids_sorted, out_a, out_b))
    if n_edges > out_a.size:
        raise UsageError(f"star_edges: {n_edges} edges do not fit outputs of {out_a.size}; make them that long")
    return n_edges


def _check(where: str, keys: NDArray[np.uint64], ids: NDArray[np.uint32]) -> None:
    if keys.dtype != np.uint64 or ids.dtype != np.uint32 or keys.shape != ids.shape or keys.ndim != 1:
        raise UsageError(
            f"{where}: expected as many uint64 keys as uint32 ids, "
            f"got {keys.dtype} of shape {keys.shape} and {ids.dtype} of shape {ids.shape}"
        )
    if not (keys.flags.c_contiguous and ids.flags.c_contiguous):
        raise UsageError(f"{where}: expected contiguous arrays, got slices with steps")
