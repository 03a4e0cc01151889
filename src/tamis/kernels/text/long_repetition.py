"""Repeated n-grams of one very long document, in bounded memory: the same fractions as `word_stats`, by other means.

Nothing is kept per word but two bits. The text is gone through once for each n and part of the hashes, so that the
table of a round never holds more than MAX_SLOTS entries; levels are pruned as in `_ngrams`. Memory: 64 MB and half a
byte per word; only where more than six million different n-grams are repeated, up to 22 bytes for each of those.
Time: linear, about 0.1 us per word and round.
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.language import types
from tamis.kernels.language.intrinsics import at, pointer, put
from tamis.kernels.language.jit import helper, kernel
from tamis.kernels.language.types import I32_OUT, I64_OUT, U8_IN, U8_OUT, U16_IN, U64_IN, U64_OUT
from tamis.kernels.text._blocks import ONE, PAD, ZERO
from tamis.kernels.text._ngrams import DUPLICATE, GOPHER_DUPLICATE, GOPHER_TOP, MAX_N, TOP, WIDTH, n_removed
from tamis.kernels.text._unicode import FLAGS, PAGE_OF
from tamis.kernels.text._words import K1, K2, read_word, split_words
from tamis.kernels.text.word_stats import N_MARKS, PIECE, FractionRequest, piece_end

MAX_SLOTS = 1 << 22  # of 16 bytes
RING = 16  # a power of two above MAX_N
_32, _40 = np.uint64(32), np.uint64(40)
_LOW = np.uint64(0xFFFFFFFF)
_63 = np.uint64(63)


@helper
def _digest(source, size, p, n_bytes, joined):
    """Return (value, factor, characters); an n-gram is value + factor * (value of the next + ...), joined by bytes."""
    h, n_chars, _ = read_word(source, size, p, n_bytes)
    if not joined:
        return h, K1, n_chars
    value = ZERO
    factor = ONE
    for k in range(p, p + n_bytes):
        value += np.uint64(at(source, k) + 1) * factor  # + 1: a zero byte counts
        factor *= K2
    return value, factor, n_chars


@helper
def _gram(values, factors, last, n):
    """Return the hash of the n words that end with word `last`; never 0."""
    g = at(values, last & (RING - 1))
    for k in range(1, n):
        place = (last - k) & (RING - 1)
        g = at(values, place) + at(factors, place) * g
    g *= K1
    g ^= g >> _32
    g *= K2
    return g ^ (g >> _32) if g != ZERO else ONE


@helper
def _bit(bits, k):
    return np.int64(at(bits, k >> 6) >> (np.uint64(k) & _63) & ONE)


@helper
def _set(bits, k):
    put(bits, k >> 6, at(bits, k >> 6) | ONE << (np.uint64(k) & _63))


@kernel(
    types.boolean(
        *(U8_IN, types.int64, types.int64, types.int64, types.boolean, types.int64, types.int64, types.boolean),
        *(U8_IN, U16_IN, U64_IN, U8_OUT, I32_OUT, U64_OUT, U64_OUT, U64_OUT, U64_OUT, I64_OUT),
    )
)
def _mark(
    data,
    s,
    e,
    n,
    joined,
    turn,
    n_rounds,
    pruned,
    pages_in,
    flags_in,
    before_in,
    pad_out,
    marks_out,
    ring_out,
    table_out,
    repeated_out,
    again_out,
    best,
):
    """Mark n-grams that occur more than once, and those that occurred before; best = (count, first position).

    False when the table is full.
    """
    source, pages, flags, before = pointer(data), pointer(pages_in), pointer(flags_in), pointer(before_in)
    pad, marks, values, table = pointer(pad_out), pointer(marks_out), pointer(ring_out), pointer(table_out)
    factors = pointer(ring_out[RING:])
    repeated, again = pointer(repeated_out), pointer(again_out)
    size = data.size
    slots = table_out.size // 2 - 1
    n_free = slots
    p = s
    last = np.int64(-1)
    while p < e:
        end = piece_end(source, p, e, pages, flags)
        n_words = split_words(source, size, p, end, p, PIECE, pad, pages, flags, marks)
        for w in range(n_words):
            begin = p + at(marks, 2 * w)
            value, factor, _ = _digest(source, size, begin, p + at(marks, 2 * w + 1) - begin, joined)
            last += 1
            put(values, last & (RING - 1), value)
            put(factors, last & (RING - 1), factor)
            k = last - n + 1
            if k < 0 or (pruned and not (_bit(before, k) & _bit(before, k + 1))):
                continue
            g = _gram(values, factors, last, n)
            if n_rounds > 1 and np.int64(g >> _40) % n_rounds != turn:
                continue
            slot = np.int64(g) & slots
            while at(table, 2 * slot) != ZERO and at(table, 2 * slot) != g:
                slot = (slot + 1) & slots
            if at(table, 2 * slot) == ZERO:
                put(table, 2 * slot, g)
                put(table, 2 * slot + 1, ONE << _32 | np.uint64(k))
                n_free -= 1
                if n_free == 0:
                    return False
                continue
            state = at(table, 2 * slot + 1) + (ONE << _32)
            put(table, 2 * slot + 1, state)
            count = np.int64(state >> _32)
            first = np.int64(state & _LOW)
            _set(repeated, first)
            _set(repeated, k)
            _set(again, k)
            if count > best[0] or (count == best[0] and first < best[1]):
                best[0] = count
                best[1] = first
        p = end
    return True


@kernel(
    types.void(
        *(U8_IN, types.int64, types.int64, types.int64, types.int64, types.boolean, U8_IN, U16_IN, U64_IN),
        *(U8_OUT, I32_OUT, I32_OUT, U64_OUT, U64_OUT, I64_OUT),
    )
)
def _total(
    data, s, e, n, top, joined, pages_in, flags_in, bits_in, pad_out, marks_out, spot_out, ring_out, table_out, out
):
    """Write (characters of duplicates, of the n-gram at `top`, matches of it in the text) to `out`.

    `joined`: `bits` are the repeated n-grams, duplicates are met again in the table and skipped; else `bits` are
    duplicates.
    """
    source, pages, flags, bits = pointer(data), pointer(pages_in), pointer(flags_in), pointer(bits_in)
    pad, marks, spot, values = pointer(pad_out), pointer(marks_out), pointer(spot_out), pointer(ring_out)
    factors, totals, table = pointer(ring_out[RING:]), pointer(ring_out[2 * RING :]), pointer(table_out)
    size = data.size
    slots = table_out.size - 1
    n_duplicate = n_top = 0
    total = 0
    free = np.int64(0)  # words before this one are counted (or skipped) already
    last = np.int64(-1)
    p = s
    while p < e:
        end = piece_end(source, p, e, pages, flags)
        n_words = split_words(source, size, p, end, p, PIECE, pad, pages, flags, marks)
        for w in range(n_words):
            begin = p + at(marks, 2 * w)
            stop = p + at(marks, 2 * w + 1)
            value, factor, n_chars = _digest(source, size, begin, stop - begin, joined)
            last += 1
            put(values, last & (RING - 1), value)
            put(factors, last & (RING - 1), factor)
            put(totals, last & (RING - 1), np.uint64(total))
            total += n_chars
            if top <= last < top + n:
                put(spot, 2 * (last - top), np.int32(begin - s))
                put(spot, 2 * (last - top) + 1, np.int32(stop - s))
                n_top += n_chars
            k = last - n + 1
            if k < 0 or not _bit(bits, k):
                continue
            if not joined:
                begin = max(k, free)
                n_duplicate += total - np.int64(at(totals, begin & (RING - 1))) + min(k + n - begin, n - 1)
                free = k + n
            elif k >= free:
                g = _gram(values, factors, last, n)
                slot = np.int64(g) & slots
                while at(table, slot) != ZERO and at(table, slot) != g:
                    slot = (slot + 1) & slots
                if at(table, slot) == ZERO:
                    put(table, slot, g)
                else:
                    n_duplicate += total - np.int64(at(totals, k & (RING - 1)))
                    free = k + n
        p = end
    put(out, 0, n_duplicate)
    put(out, 1, n_top + n - 1)
    put(out, 2, n_removed(source, size, s, e, spot, 0, n, pad) if top >= 0 else 0)


def long_fractions(
    data: NDArray[np.uint8],
    start: int,
    end: int,
    n_words: int,
    n_chars: int,
    wanted: FractionRequest,
    max_slots: int = MAX_SLOTS,
) -> NDArray[np.float64]:
    """fractions[kind + n] (see `_ngrams`) of data[start:end), which has `n_words` words and `n_chars` characters."""
    fractions = np.zeros(WIDTH)
    fractions[TOP : TOP + MAX_N + 1] = fractions[DUPLICATE : DUPLICATE + MAX_N + 1] = 1.0
    text = data, start, end
    before = np.empty(0, np.uint64)
    for n in range(2, min(n_words, wanted.last_n) + 1):
        repeated, again, best = _marked(text, n, n_words, before, False, max_slots)
        top = int(best[1]) if best[0] > 1 else 0
        n_duplicate, n_top, n_matches = _totals(text, n, top, again, np.zeros(2, np.uint64), False)
        fractions[DUPLICATE + n] = n_duplicate / n_chars
        fractions[GOPHER_TOP + n] = n_top * int(best[0]) / n_chars
        fractions[TOP + n] = n_top * n_matches / n_chars
        before = repeated
    for n in range(2, min(n_words, MAX_N) + 1):
        if wanted.joins >> n & 1:
            repeated, _, _ = _marked(text, n, n_words, np.empty(0, np.uint64), True, max_slots)
            n_different = _n_set(repeated) // 2  # each is at two places or more
            table = np.zeros(1 << max(4, (n_different * 4 // 3).bit_length()), np.uint64)
            fractions[GOPHER_DUPLICATE + n] = _totals(text, n, -1, repeated, table, True)[0] / n_chars
    return fractions


def _n_set(bits: NDArray[np.uint64]) -> int:
    return int.from_bytes(bits.tobytes(), "little").bit_count()


def _marked(
    text: tuple[NDArray[np.uint8], int, int],
    n: int,
    n_words: int,
    before: NDArray[np.uint64],
    joined: bool,
    max_slots: int,
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int64]]:
    repeated, again = np.zeros(n_words // 64 + 1, np.uint64), np.zeros(n_words // 64 + 1, np.uint64)
    best = np.array([1, n_words], np.int64)
    n_places = _n_set(before) if before.size else n_words
    n_slots = min(max_slots, 1 << max(4, (n_places * 4 // 3).bit_length()))
    n_rounds = max(1, -(-n_places * 4 // (3 * n_slots)))
    pruned = before.size > 0
    table, scratch = np.zeros(2 * n_slots, np.uint64), (np.zeros(PAD, np.uint8), np.empty(N_MARKS, np.int32))
    ring = np.zeros(3 * RING, np.uint64)
    turn = 0
    while turn < n_rounds:
        table.fill(0)
        tables = PAGE_OF, FLAGS, before if pruned else repeated
        if _mark(*text, n, joined, turn, n_rounds, pruned, *tables, *scratch, ring, table, repeated, again, best):
            turn += 1
            continue
        turn, n_rounds = 0, 2 * n_rounds  # the hashes were unevenly spread: again, in smaller parts
        repeated.fill(0)
        again.fill(0)
        best[:] = 1, n_words
    return repeated, again, best


def _totals(
    text: tuple[NDArray[np.uint8], int, int],
    n: int,
    top: int,
    bits: NDArray[np.uint64],
    table: NDArray[np.uint64],
    joined: bool,
) -> tuple[int, int, int]:
    scratch = np.zeros(PAD, np.uint8), np.empty(N_MARKS, np.int32), np.empty(2 * RING, np.int32)
    out = np.zeros(3, np.int64)
    _total(*text, n, top, joined, PAGE_OF, FLAGS, bits, *scratch, np.zeros(3 * RING, np.uint64), table, out)
    return int(out[0]), int(out[1]), int(out[2])
