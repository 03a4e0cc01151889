"""Equal windows around equal k-grams: which of the windows of some candidates occur more than once, and where first.

A candidate is a k-gram in a text, with the range of offsets at which windows that select it begin before it. The
candidates of a group share a hash; windows of two candidates can be equal at the same offset only, so every window is
looked up once: by its rolled hash in a table of the windows at this offset, and then byte by byte. How far two
candidates agree on either side is found once for each pair that meets, so comparing costs their length and not that of
all their windows. Results are ranges of offsets at which the windows of a candidate have their first occurrence at the
same candidate.

Memory: 56 bytes per candidate of the largest group, 8 to 16 for the table, and the texts.
"""
# Compiled functions carry their types in the signatures of the kernels; numbers there change from int to int64.
# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.language import types
from tamis.kernels.language.intrinsics import at, load_u64, pointer, put
from tamis.kernels.language.jit import helper, kernel
from tamis.kernels.language.types import I32_OUT, I64_IN, I64_OUT, U8_IN, U32_IN, U32_OUT, U64_IN, U64_OUT
from tamis.kernels.sketch._shingles import mix
from tamis.kernels.substrings._rolling import BASE, TABLE, leaving

BYTES_PER_CANDIDATE = 160  # without its text: what the kernel works in, and what callers give and get


@helper
def _matching_right(text, a, b, limit):
    """Return how many bytes from a and from b on are equal, at most `limit`."""
    n = np.int64(0)
    while n + 8 <= limit and load_u64(text, a + n) == load_u64(text, b + n):
        n += 8
    while n < limit and at(text, a + n) == at(text, b + n):
        n += 1
    return n


@helper
def _matching_left(text, a, b, limit):
    """Return how many bytes before a and before b are equal, at most `limit`."""
    n = np.int64(0)
    while n + 8 <= limit and load_u64(text, a - n - 8) == load_u64(text, b - n - 8):
        n += 8
    while n < limit and at(text, a - n - 1) == at(text, b - n - 1):
        n += 1
    return n


@kernel(
    types.int64(
        *(U8_IN, I64_IN, I64_IN, I64_IN, U64_IN, U32_IN, I64_IN, types.int64, U64_IN, U64_IN),
        *(I32_OUT, U64_OUT, I32_OUT, I32_OUT, I32_OUT, I32_OUT, I64_OUT, U32_OUT, I32_OUT, I32_OUT, U32_OUT),
        *(I32_OUT, I32_OUT, I32_OUT, I32_OUT, U32_OUT),
    )
)
def _classes(
    text_in, place, low, high, first, count, bounds, length, table_in, gone_in,
    slots, hashes, slot_of, partner, left, right, class_first, class_count, since, known, most,
    out_candidate, out_low, out_high, out_first, out_count,
):  # fmt: skip
    """Write the ranges; return how many, or -1 where there is no room for all."""
    text, table, gone = pointer(text_in), pointer(table_in), pointer(gone_in)
    capacity = np.int64(out_low.size)
    n_out = np.int64(0)
    for g in range(bounds.size - 1):
        begin = at(bounds, g)
        n = at(bounds, g + 1) - begin
        mask = np.int64(7)
        while mask < 2 * n:
            mask = 2 * mask + 1
        for j in range(mask + 1):
            put(slots, j, np.int32(-1))
        o = at(low, begin)
        end = at(high, begin)
        for c in range(n):
            put(partner, c, np.int32(-1))
            put(known, c, np.int32(-1))
            o = at(low, begin + c) if at(low, begin + c) < o else o
            end = at(high, begin + c) if at(high, begin + c) > end else end
        while o <= end:
            for c in range(n):
                i = begin + c
                if o < at(low, i) or o > at(high, i):
                    continue
                p = at(place, i)
                if o == at(low, i):
                    h = np.uint64(0)
                    j = p - o + length - 1
                    while j >= p - o:
                        h = h * BASE + at(table, at(text, j))
                        j -= 1
                else:
                    h = at(hashes, c) * BASE + at(table, at(text, p - o)) - at(gone, at(text, p - o + length))
                put(hashes, c, h)
                slot = np.int64(mix(h)) & mask
                searching = True
                while searching:
                    other = np.int64(at(slots, slot))
                    if other < 0:
                        put(slots, slot, np.int32(c))
                        put(class_first, c, np.int64(c))
                        put(class_count, c, at(count, i))
                        put(slot_of, c, np.int32(slot))
                        searching = False
                    elif at(hashes, other) == h:
                        if np.int64(at(partner, c)) != other:
                            put(partner, c, np.int32(other))
                            q = at(place, begin + other)
                            limit = at(high, begin + other)
                            limit = at(high, i) if at(high, i) < limit else limit
                            put(left, c, np.int32(_matching_left(text, p, q, limit)))
                            limit = at(low, begin + other)
                            limit = length - (at(low, i) if at(low, i) > limit else limit)
                            put(right, c, np.int32(_matching_right(text, p, q, limit)))
                        if at(left, c) >= o and at(right, c) >= length - o:
                            put(slot_of, c, np.int32(slot))
                            leader = at(class_first, other)
                            if at(first, i) < at(first, begin + leader):
                                put(class_first, other, np.int64(c))
                            total = at(class_count, other) + at(count, i)
                            put(class_count, other, total if total >= at(count, i) else np.uint32(0xFFFFFFFF))
                            searching = False
                    if searching:
                        slot = (slot + 1) & mask
            for c in range(n):
                i = begin + c
                if o < at(low, i) or o > at(high, i):
                    continue
                other = np.int64(at(slots, np.int64(at(slot_of, c))))
                leader = np.int64(at(class_first, other))
                total = at(class_count, other)
                if total < 2:
                    leader = np.int64(-1)
                if np.int64(at(known, c)) != leader:
                    if at(known, c) >= 0:
                        if n_out == capacity:
                            return -1
                        put(out_candidate, n_out, np.int32(i))
                        put(out_low, n_out, at(since, c))
                        put(out_high, n_out, np.int32(o - 1))
                        put(out_first, n_out, np.int32(begin + np.int64(at(known, c))))
                        put(out_count, n_out, at(most, c))
                        n_out += 1
                    put(known, c, np.int32(leader))
                    put(since, c, np.int32(o))
                    put(most, c, total)
                elif total > at(most, c):
                    put(most, c, total)
                if o == at(high, i) and leader >= 0:
                    if n_out == capacity:
                        return -1
                    put(out_candidate, n_out, np.int32(i))
                    put(out_low, n_out, at(since, c))
                    put(out_high, n_out, np.int32(o))
                    put(out_first, n_out, np.int32(begin + leader))
                    put(out_count, n_out, at(most, c))
                    n_out += 1
            for c in range(n):
                i = begin + c
                if o >= at(low, i) and o <= at(high, i):
                    put(slots, np.int64(at(slot_of, c)), np.int32(-1))
            o += 1
    return n_out


@dataclass(frozen=True)
class Repeats:
    """Windows of `candidate` at offsets `low` to `high` occur `count` times at most, first at candidate `first`."""

    candidate: NDArray[np.int32]
    low: NDArray[np.int32]
    high: NDArray[np.int32]
    first: NDArray[np.int32]
    count: NDArray[np.uint32]


def find_repeats(
    text: NDArray[np.uint8],
    place: NDArray[np.int64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    first: NDArray[np.uint64],
    count: NDArray[np.uint32],
    bounds: NDArray[np.int64],
    length: int,
) -> Repeats:
    """Return the repeated windows of candidates in groups, group g being bounds[g]:bounds[g + 1].

    The windows of candidate i begin at text[place[i] - o] for `low[i] <= o <= high[i]`. `first`: where it occurs first
    (smaller is earlier); `count`: how often its windows occur as they are.
    """
    n = place.size
    if not n:
        empty = np.empty(0, np.int32)
        return Repeats(empty, empty, empty, empty, np.empty(0, np.uint32))
    inside = (low >= 0) & (low <= high) & (place >= high) & (place - low + length <= text.size) & (high <= length)
    sizes = np.diff(bounds)
    if not inside.all() or int(bounds[0]) != 0 or int(bounds[-1]) != n or int(sizes.min()) < 1 or n >= 1 << 30:
        raise ValueError("find_repeats: candidates, their offsets or the bounds of groups do not fit the text")
    largest = int(sizes.max())
    n_slots = max(8, 1 << (2 * largest).bit_length())
    i32: list[NDArray[Any]] = [np.empty(largest, np.int32) for _ in range(4)]
    work = (
        *(np.empty(n_slots, np.int32), np.empty(largest, np.uint64), *i32, np.empty(largest, np.int64)),
        *(np.empty(largest, np.uint32), np.empty(largest, np.int32), np.empty(largest, np.int32)),
        np.empty(largest, np.uint32),
    )
    capacity = 2 * n + 16
    while True:
        out: tuple[NDArray[Any], ...] = tuple(np.empty(capacity, np.int32) for _ in range(4))
        counts = np.empty(capacity, np.uint32)
        n_out = int(
            _classes(text, place, low, high, first, count, bounds, length, TABLE, leaving(length), *work, *out, counts)
        )
        if n_out >= 0:
            return Repeats(out[0][:n_out], out[1][:n_out], out[2][:n_out], out[3][:n_out], counts[:n_out])
        capacity *= 4
