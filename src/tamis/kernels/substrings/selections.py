"""Winnowing: the k-gram that each window of a text selects, a function of the bytes of the window alone.

A window of `length` bytes holds w = length - k + 1 k-grams, and selects the one with the smallest hash, of several the
rightmost (Schleimer, Wilkerson, Aiken 2003). Equal windows select equal k-grams at equal offsets, wherever they are; on
ordinary text 2 of w + 1 positions are selected. The windows that select one position follow each other. A selection is
that position, the hash of its k-gram, how far before it the first and the last of its windows begin, and a hash of all
bytes of its windows. Selections that follow each other in a text and agree in all of it (in a run of one character, or
of any period) are one, with the distance from the first to the last as `span`.

Ties: taking the rightmost of all makes the choice a function of the window. "Robust" winnowing, which prefers the
position selected before, selects less of a constant text and loses equal windows.

Memory: 8 bytes for each of w + CHUNK k-grams, and the selections. Every position is looked at a bounded number of
times, whatever the text: minima of the suffixes of a window are kept when it is searched.
"""
# Compiled functions carry their types in the signatures of the kernels; numbers there change from int to int64.
# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.language import types
from tamis.kernels.language.intrinsics import at, pointer, put
from tamis.kernels.language.jit import helper, kernel
from tamis.kernels.language.types import I64_IN, I64_OUT, U8_IN, U32_OUT, U64_IN, U64_OUT
from tamis.kernels.records.hash128 import hash_bytes
from tamis.kernels.sketch._shingles import mix
from tamis.kernels.substrings._rolling import BASE, BASE2, BASE3, BASE4, TABLE, leaving

SELECTION_VERSION = 1
MIN_LENGTH, MAX_LENGTH = 2, 60_000  # of a window: offsets in it take 16 bits
CHUNK = 8192
_LARGEST = np.uint64(0xFFFFFFFFFFFFFFFF)
_32 = np.uint64(32)
Words = NDArray[np.uint64]

# Fields of the state while a text is read.
FIRST_KEPT, N_HASHES, ROLLED, CURRENT, CURRENT_HASH, FIRST_WINDOW, N_CHAIN, MINIMUM, MINIMUM_AT, SEARCHED = range(10)


@helper
def _fill(source, s, m, k, table, gone, state, hashes, room, w):
    """Append the hashes of the next k-grams of a text; keep those of the last window."""
    base = np.int64(at(state, FIRST_KEPT))
    filled = np.int64(at(state, N_HASHES))
    if filled - base + CHUNK > room:
        kept = w if w < filled - base else filled - base
        begin = filled - kept - base
        for j in range(kept):
            put(hashes, j, at(hashes, begin + j))
        base = filled - kept
        put(state, FIRST_KEPT, np.uint64(base))
    end = filled + CHUNK if filled + CHUNK < m else m
    h = at(state, ROLLED)
    i = filled
    if i == 0:
        h = np.uint64(0)
        for j in range(k):
            h = h * BASE + at(table, at(source, s + j))
        put(hashes, 0, h)
        i = 1
    p = s + i - 1  # the byte that leaves; the one that comes is k further
    o = i - base
    while i + 4 <= end:  # four at a time: one multiplication after the other would take longer
        d1 = at(table, at(source, p + k)) - at(gone, at(source, p))
        d2 = d1 * BASE + (at(table, at(source, p + k + 1)) - at(gone, at(source, p + 1)))
        d3 = d2 * BASE + (at(table, at(source, p + k + 2)) - at(gone, at(source, p + 2)))
        d4 = d3 * BASE + (at(table, at(source, p + k + 3)) - at(gone, at(source, p + 3)))
        put(hashes, o, h * BASE + d1)
        put(hashes, o + 1, h * BASE2 + d2)
        put(hashes, o + 2, h * BASE3 + d3)
        h = h * BASE4 + d4
        put(hashes, o + 3, h)
        p += 4
        o += 4
        i += 4
    while i < end:
        h = h * BASE + (at(table, at(source, p + k)) - at(gone, at(source, p)))
        put(hashes, o, h)
        p += 1
        o += 1
        i += 1
    put(state, ROLLED, h)
    put(state, N_HASHES, np.uint64(end))
    for j in range(filled - base, end - base):
        put(hashes, j, mix(at(hashes, j)))


@helper
def _search(hashes, base, first, last, chain):
    """List the minima of the suffixes of a window, the rightmost of equal ones; return how many."""
    n = np.int64(0)
    smallest = _LARGEST
    j = last
    while j >= first:
        h = at(hashes, j - base)
        if h < smallest or n == 0:
            smallest = h
            put(chain, n, j)
            n += 1
        j -= 1
    return n


@helper
def _expire(hashes, base, i, w, state, chain):
    """Choose the smallest hash of the window that ends at i, whose predecessor's was before it."""
    first = i - w + 1
    n = np.int64(at(state, N_CHAIN))
    while n > 0 and at(chain, n - 1) < first:
        n -= 1
    if n == 0:
        n = _search(hashes, base, first, i, chain)
        put(state, MINIMUM, _LARGEST)
        put(state, MINIMUM_AT, np.uint64(0))
        put(state, SEARCHED, np.uint64(i + 1))
        put(state, N_CHAIN, np.uint64(n))
        return at(chain, n - 1)
    smallest = at(state, MINIMUM)
    where = np.int64(at(state, MINIMUM_AT))
    found = where > 0
    for j in range(np.int64(at(state, SEARCHED)), i + 1):
        if at(hashes, j - base) <= smallest:
            smallest = at(hashes, j - base)
            where = j
            found = True
    put(state, MINIMUM, smallest)
    put(state, MINIMUM_AT, np.uint64(where))
    put(state, SEARCHED, np.uint64(i + 1))
    head = at(chain, n - 1)
    if found and smallest <= at(hashes, head - base):
        head = where  # those of the chain end before it does
        n = np.int64(0)
    put(state, N_CHAIN, np.uint64(n))
    return head


@kernel(
    types.int64(
        *(U8_IN, I64_IN, I64_IN, types.int64, types.int64, types.int64, U64_IN, U64_IN, I64_OUT, U64_OUT, U64_OUT),
        *(U32_OUT, U32_OUT, U32_OUT, U32_OUT, U64_OUT, U64_OUT),
    )
)
def _selections(
    data, starts, ends, row, length, k, table_in, gone_in, chain_out, state_out, hashes_out,
    rows, positions, reaches, spans, keys, contexts,
):  # fmt: skip
    """Select for the texts from `row` on, as long as there is room; state[0] is the first that was not done."""
    source, table, gone = pointer(data), pointer(table_in), pointer(gone_in)
    chain, state, hashes = pointer(chain_out), pointer(state_out), pointer(hashes_out)
    size = data.size
    room = np.int64(hashes_out.size)
    capacity = np.int64(rows.size)
    w = length - k + 1
    n = np.int64(0)
    while row < starts.size:
        s = at(starts, row)
        e = at(ends, row)
        before = n
        fits = True
        if e - s >= length:
            m = e - s - k + 1
            for j in range(10):
                put(state, j, np.uint64(0))
            current = np.int64(-1)
            current_hash = np.uint64(0)
            first_window = np.int64(0)
            i = w - 1
            while np.int64(at(state, N_HASHES)) < w:
                _fill(source, s, m, k, table, gone, state, hashes, room, w)
            base = np.int64(at(state, FIRST_KEPT))
            filled = np.int64(at(state, N_HASHES))
            ended = False
            while not ended:
                chosen = current
                if current < 0:
                    chosen = _expire(hashes, base, i, w, state, chain)
                else:
                    limit = filled if filled < current + w else current + w
                    while i + 4 <= limit:
                        if (
                            at(hashes, i - base) <= current_hash
                            or at(hashes, i + 1 - base) <= current_hash
                            or at(hashes, i + 2 - base) <= current_hash
                            or at(hashes, i + 3 - base) <= current_hash
                        ):
                            break
                        i += 4
                    while i < limit and at(hashes, i - base) > current_hash:
                        i += 1
                    if i >= filled:
                        if filled < m:
                            _fill(source, s, m, k, table, gone, state, hashes, room, w)
                            base = np.int64(at(state, FIRST_KEPT))
                            filled = np.int64(at(state, N_HASHES))
                            continue
                        ended = True
                    elif i == current + w:
                        chosen = _expire(hashes, base, i, w, state, chain)
                    else:
                        chosen = i
                        put(state, N_CHAIN, np.uint64(0))
                if current >= 0:  # write the selection that ends before this window
                    high = current - first_window
                    low = current - (i - w)
                    begin = s + first_window
                    context, _ = hash_bytes(
                        source, size, begin, length + high - low, np.uint64(high) << _32 | np.uint64(low)
                    )
                    reach = np.uint32(high << 16 | low)
                    key = mix(current_hash)  # evenly distributed, which smallest hashes are not
                    p = np.uint32(current)
                    if (
                        n > before
                        and at(keys, n - 1) == key
                        and at(contexts, n - 1) == context
                        and at(reaches, n - 1) == reach
                    ):
                        put(spans, n - 1, p - at(positions, n - 1))
                    elif n == capacity:
                        fits = False
                        ended = True
                    else:
                        put(rows, n, np.uint32(row))
                        put(positions, n, p)
                        put(reaches, n, reach)
                        put(spans, n, np.uint32(0))
                        put(keys, n, key)
                        put(contexts, n, context)
                        n += 1
                first_window = i - w + 1
                current = chosen
                current_hash = at(hashes, current - base)
                i += 1
        if not fits:
            n = before
            break
        row += 1
    put(state, 0, np.uint64(row))
    return n


@dataclass(frozen=True)
class Selections:
    """Selections of some texts, by text and position. The windows of one begin `high` to `low` bytes before it."""

    row: NDArray[np.uint32]
    position: NDArray[np.uint32]
    reach: NDArray[np.uint32]  # high << 16 | low
    span: NDArray[np.uint32]  # from the first to the last of a run
    key: Words
    context: Words

    def __len__(self) -> int:
        return len(self.row)

    @property
    def high(self) -> NDArray[np.int64]:
        return (self.reach >> np.uint32(16)).astype(np.int64)

    @property
    def low(self) -> NDArray[np.int64]:
        return (self.reach & np.uint32(0xFFFF)).astype(np.int64)


def gram_bytes(length: int) -> int:
    """Return k for windows of this many bytes: half, measured (docs/explanation/benchmarks-substring.md)."""
    return max(1, length // 2)


def _check_spans(data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
    """Raise ValueError for a text that is outside the data, or too long for the kernel."""
    sizes = ends - starts
    if sizes.size and (int(sizes.min()) < 0 or int(starts.min()) < 0 or int(ends.max()) > data.size):
        raise ValueError(f"select: a text is outside the {data.size} bytes given")
    if sizes.size and int(sizes.max()) >= 1 << 32:
        raise ValueError("select: texts of 4 GiB and more are not supported")


def select(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64], length: int, k: int | None = None
) -> Selections:
    """Return what the windows of the texts data[starts[i]:ends[i]) select."""
    k = gram_bytes(length) if k is None else k
    if not MIN_LENGTH <= length <= MAX_LENGTH or not 1 <= k <= length:
        raise ValueError(f"select: expected 1 <= k <= length and {MIN_LENGTH} <= length <= {MAX_LENGTH}")
    _check_spans(data, starts, ends)
    sizes = ends - starts
    w = length - k + 1
    n_windows = int(np.maximum(sizes - length + 1, 0).sum())
    capacity = min(n_windows, n_windows * 3 // w + 64)
    work = (np.empty(w, np.int64), np.empty(16, np.uint64), np.empty(w + 2 * CHUNK, np.uint64))
    parts: list[tuple[NDArray[Any], ...]] = []
    row = 0
    while row < starts.size:
        out: tuple[NDArray[Any], ...] = (*(np.empty(capacity, np.uint32) for _ in range(4)),)
        out = (*out, np.empty(capacity, np.uint64), np.empty(capacity, np.uint64))
        n = int(_selections(data, starts, ends, row, length, k, TABLE, leaving(k), *work, *out))
        parts.append(tuple(values[:n].copy() for values in out) if row or n < capacity // 2 else _cut(out, n))
        row, capacity = int(work[1][0]), min(n_windows, 4 * capacity + 64)
    if len(parts) == 1:
        return Selections(*parts[0])
    kinds = (np.uint32,) * 4 + (np.uint64,) * 2
    return Selections(*(np.concatenate([np.empty(0, kind), *(p[i] for p in parts)]) for i, kind in enumerate(kinds)))


def _cut(out: tuple[NDArray[Any], ...], n: int) -> tuple[NDArray[Any], ...]:
    return tuple(values[:n] for values in out)
