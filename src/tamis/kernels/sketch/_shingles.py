"""The shingles of one document as 64-bit hashes, a chunk at a time. Helpers for the kernels of this group.

Units are code points or words (str.split()); each has a 64-bit hash g. A shingle is n units in a row and its hash is
mix(seed ^ sum of g[i] * BASE**(n-1-i)), rolled from one place to the next modulo 2**64. In ASCII documents g comes from
a table by byte; other documents, and words, write g to a buffer first: equal units give equal hashes on either way.

A polynomial and not cyclic shifts of 64 bits: four places at a time it is a quarter faster, and it does not collapse at
n = 32 or 64, where runs of one character would keep 33 bits or one. Scratch: CHUNK + n units and hashes, whatever the
length of the document.
"""
# Compiled functions carry their types in the signatures of the kernels; numbers there change from int to int64.
# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

import numpy as np

from tamis.kernels.language.intrinsics import at, load_u64, mask_ge, put
from tamis.kernels.language.jit import helper
from tamis.kernels.text._blocks import ONE, ZERO, word_changes
from tamis.kernels.text._unicode import decode, first_word_byte
from tamis.kernels.text._words import hash_words, put_places

CHARS, WORDS, HASHES = 0, 1, 2  # what a document consists of; HASHES: 8 bytes each, finished shingle hashes
MAX_N = 1024
CHUNK = 2048
SLACK = 64
PIECE = 2 * CHUNK  # bytes that hold at most CHUNK words

BASE = np.uint64(0x6A09E667F3BCC90D)  # digits of the square root of 2; 5 modulo 8, so that powers repeat late
BASE2, BASE3, BASE4 = (np.uint64(pow(int(BASE), k, 1 << 64)) for k in (2, 3, 4))
POINT = np.uint64(0xBB67AE8584CAA73B)  # ... of 3
_M1 = np.uint64(0xFF51AFD7ED558CCD)
_M2 = np.uint64(0xC4CEB9FE1A85EC53)
_29, _32 = np.uint64(29), np.uint64(32)
_HIGH_BITS = np.uint64(0x8080808080808080)

# Fields of the state between two chunks.
PLACE, HASH, SEEN, KEPT, ASCII, INSIDE, OVERFLOW, BEGIN, DONE = range(9)
N_STATE = 16


@helper
def mix(x):
    """Mix the bits of x with two multiplications between shifts.

    Every bit of x affects every bit of the result. A bijection.
    """
    x = (x ^ (x >> _32)) * _M1
    x = (x ^ (x >> _29)) * _M2
    return x ^ (x >> _32)


@helper
def _is_ascii(source, p, e):
    while p + 64 <= e:
        if mask_ge(source, p, 128) != ZERO:
            return False
        p += 64
    while p < e:
        if at(source, p) >= 128:
            return False
        p += 1
    return True


@helper
def start(source, s, e, kind, pages, flags, state):
    """Set `state` to the beginning of the document [s, e). A blank one is done at once."""
    for k in range(N_STATE):
        put(state, k, ZERO)
    put(state, PLACE, np.uint64(s))
    if s >= e or (kind == CHARS and first_word_byte(source, s, e, pages, flags) == e):
        put(state, DONE, ONE)
    elif kind == CHARS:
        put(state, ASCII, np.uint64(_is_ascii(source, s, e)))


@helper
def mix_all(out, k, end, seed):
    """Finish rolled hashes: apart from the rolling, so that it is compiled to vectors."""
    while k < end:
        put(out, k, mix(at(out, k) ^ seed))
        k += 1


@helper
def _ascii_change(source, p, n, table):
    return at(table, at(source, p)) - at(table, 128 + np.int64(at(source, p - n)))


@helper
def _ascii_shingles(source, e, n, seed, table, state, out, k):
    p = np.int64(at(state, PLACE))
    h = at(state, HASH)
    first = k
    if at(state, SEEN) == ZERO:
        stop = min(p + n, e)
        while p < stop:
            h = h * BASE + at(table, at(source, p))
            p += 1
        put(out, k, h)
        put(state, SEEN, ONE)
        k += 1
    stop = min(e, p + CHUNK - 1)
    while p + 4 <= stop:  # four at a time: a multiplication for each, in a row, takes 1.4 times as long
        d1 = _ascii_change(source, p, n, table)
        d2 = d1 * BASE + _ascii_change(source, p + 1, n, table)
        d3 = d2 * BASE + _ascii_change(source, p + 2, n, table)
        d4 = d3 * BASE + _ascii_change(source, p + 3, n, table)
        put(out, k, h * BASE + d1)
        put(out, k + 1, h * BASE2 + d2)
        put(out, k + 2, h * BASE3 + d3)
        h = h * BASE4 + d4
        put(out, k + 3, h)
        p += 4
        k += 4
    while p < stop:
        h = h * BASE + _ascii_change(source, p, n, table)
        put(out, k, h)
        p += 1
        k += 1
    mix_all(out, first, k, seed)
    put(state, PLACE, np.uint64(p))
    put(state, HASH, h)
    put(state, DONE, np.uint64(p >= e))
    return k - first


@helper
def _point_units(source, e, table, state, units, m):
    """Write hashes of up to CHUNK code points to units[m:]; return the position after the last."""
    p = np.int64(at(state, PLACE))
    limit = m + CHUNK
    while p < e and m < limit:
        if p + 8 <= e and m + 8 <= limit and load_u64(source, p) & _HIGH_BITS == ZERO:
            for j in range(8):
                put(units, m + j, at(table, at(source, p + j)))
            p += 8
            m += 8
            continue
        code, p = decode(source, p, e)
        put(units, m, mix(np.uint64(code) + POINT))
        m += 1
    put(state, PLACE, np.uint64(p))
    put(state, DONE, np.uint64(p >= e))
    return m


@helper
def _word_units(source, size, e, pad, pages, flags, marks, state, units, m):
    """Write hashes of the words that end in the next PIECE bytes to units[m:]; return the position after the last."""
    p = np.int64(at(state, PLACE))
    inside = at(state, INSIDE)
    overflow = at(state, OVERFLOW)
    n_marks = np.int64(inside)
    put(marks, 0, np.int64(at(state, BEGIN)))
    stop = min(e, p + PIECE)
    while p < stop:
        changes, inside, overflow = word_changes(source, size, p, e, pad, pages, flags, inside, overflow)
        n_marks = put_places(marks, n_marks, p, changes)
        p += 64
    if p >= e:
        put(marks, n_marks, e)
        n_marks += n_marks & 1
        put(state, DONE, ONE)
    m = hash_words(source, size, marks, n_marks // 2, units, m)
    put(state, PLACE, np.uint64(p))
    put(state, INSIDE, inside)
    put(state, OVERFLOW, overflow)
    put(state, BEGIN, np.uint64(at(marks, max(n_marks - 1, 0))))
    return m


@helper
def _roll(units, m, n, power, seed, state, out, k):
    """Compute hashes of the shingles that end among units[KEPT:m]; keep the last n units for the next time."""
    h = at(state, HASH)
    seen = np.int64(at(state, SEEN))
    i = np.int64(at(state, KEPT))
    first = k
    while i < m and seen < n:
        h = h * BASE + at(units, i)
        seen += 1
        i += 1
        if seen == n:
            put(out, k, h)
            k += 1
    while i + 4 <= m:
        d1 = at(units, i) - at(units, i - n) * power
        d2 = d1 * BASE + (at(units, i + 1) - at(units, i + 1 - n) * power)
        d3 = d2 * BASE + (at(units, i + 2) - at(units, i + 2 - n) * power)
        d4 = d3 * BASE + (at(units, i + 3) - at(units, i + 3 - n) * power)
        put(out, k, h * BASE + d1)
        put(out, k + 1, h * BASE2 + d2)
        put(out, k + 2, h * BASE3 + d3)
        h = h * BASE4 + d4
        put(out, k + 3, h)
        i += 4
        k += 4
    while i < m:
        h = h * BASE + (at(units, i) - at(units, i - n) * power)
        put(out, k, h)
        i += 1
        k += 1
    if at(state, DONE) != ZERO and 0 < seen < n:
        put(out, k, h)
        k += 1
    mix_all(out, first, k, seed)
    kept = min(n, m)
    for j in range(kept):
        put(units, j, at(units, m - kept + j))
    put(state, HASH, h)
    put(state, SEEN, np.uint64(seen))
    put(state, KEPT, np.uint64(kept))
    return k - first


@helper
def next_shingles(source, size, e, kind, n, power, seed, table, pages, flags, work, out, k):
    """Write the next hashes to out[k:], at most CHUNK + SLACK; how many. state[DONE] is set after the last.

    `work` = (pad, marks, units, state); `table` is from `tables`, `power` is BASE**n.
    """
    pad, marks, units, state = work
    if kind == HASHES:
        p = np.int64(at(state, PLACE))
        n_hashes = min((e - p) // 8, CHUNK)
        for j in range(n_hashes):
            put(out, k + j, load_u64(source, p + 8 * j))
        p += 8 * n_hashes
        put(state, PLACE, np.uint64(p))
        put(state, DONE, np.uint64(p + 8 > e))
        return n_hashes
    if at(state, ASCII) != ZERO:
        return _ascii_shingles(source, e, n, seed, table, state, out, k)
    m = np.int64(at(state, KEPT))
    if kind == CHARS:
        m = _point_units(source, e, table, state, units, m)
    else:
        m = _word_units(source, size, e, pad, pages, flags, marks, state, units, m)
    return _roll(units, m, n, power, seed, state, out, k)
