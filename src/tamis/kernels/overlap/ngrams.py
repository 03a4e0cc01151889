"""N-grams of normalised words (folding.py): those of a text that a filter knows, and whether two passages are equal.

A text is a sequence of tokens; a window begins at every token and ends with the token at which it first weighs
`full`: 13 words, or 26 Chinese characters, by default. Its hash is that of the 64-bit hashes of its tokens, rolled as
a difference of two prefix sums, so that windows of any number of tokens cost the same. Windows of the smaller weight
`short` are hashed apart, for items that are no longer than that.

The filter is a blocked Bloom filter: 64 bytes by the upper half of a hash, and in these N_BITS bits, so that a lookup
is one access to memory. Windows wait in a queue while their lines are on the way. With 15 bits for each n-gram about
one window in a thousand passes by chance; what passes is looked up in an exact table (dedup/contamination/index.py).

Memory: 40 kB whatever the length of the text. Time: linear.
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.language import types
from tamis.kernels.language.intrinsics import at, pointer, prefetch, put
from tamis.kernels.language.jit import helper, kernel
from tamis.kernels.language.types import I64_IN, I64_OUT, U8_IN, U16_IN, U32_IN, U64_IN, U64_OUT
from tamis.kernels.overlap.folding import WEIGHT_OF_WORD, WORD, Folding
from tamis.kernels.overlap.letters import next_letter
from tamis.kernels.overlap.tokens import BLOCK_BYTES, MASK, RING, add_ascii_words, add_token
from tamis.kernels.sketch._shingles import BASE, mix

BITS_PER_NGRAM = 15
N_BITS = 7
LINE_WORDS = 8  # of 64 bits: one line of the cache
MAX_WORDS = 60  # in a window
FULL, SHORT = 0, 1
"""Kinds of windows."""
FIELDS = ("row", "start", "end", "token", "token_end", "kind")
N_FIELDS = 6
QUEUE = 64  # tokens of which the windows are looked up together
MOST_QUEUED = 2 * (QUEUE + 32 + 4 * MAX_WORDS)
_BIT_FACTOR = np.uint64(0xD6E8FEB86659FD93)
_SHORT_SEED = np.uint64(0xA0761D6478BD642F)
_32, _6, _9, _18, _63, _511 = (np.uint64(n) for n in (32, 6, 9, 18, 63, 511))
_ZERO, _ONE = np.uint64(0), np.uint64(1)
# Items of the state. N_READ: letters of the character at PLACE; N_ROLLED: tokens whose windows were queued.
PLACE, ROW, N_READ, N_TOKENS, N_ROLLED, NEXT_FULL, NEXT_SHORT = range(7)
N_STATE = 7
# A window in the queue: its first token, the number of its tokens, its kind.
_FIRST_SHIFT, _N_MASK = 10, 511


@helper
def _line(g, n_lines):
    return np.int64((g >> _32) * np.uint64(n_lines) >> _32) * LINE_WORDS


@helper
def _bit(filter_, line, bits):
    return at(filter_, line + np.int64((bits & _511) >> _6)) >> (bits & _63)


@helper
def _may_be_known(filter_, n_lines, g):
    """Look at three bits at once: a branch for each would be mispredicted for most windows."""
    line = _line(g, n_lines)
    bits = g * _BIT_FACTOR
    together = _bit(filter_, line, bits) & _bit(filter_, line, bits >> _9) & _bit(filter_, line, bits >> _18)
    return together & _ONE != _ZERO


@helper
def _is_known(filter_, n_lines, g):
    line = _line(g, n_lines)
    bits = g * _BIT_FACTOR
    for _ in range(N_BITS):
        if _bit(filter_, line, bits) & _ONE == _ZERO:
            return False
        bits >>= _9
    return True


@kernel(types.void(U64_IN, U64_OUT))
def _add_all(hashes, filter_out):
    n_lines = filter_out.size // LINE_WORDS
    for i in range(hashes.size):
        line = _line(hashes[i], n_lines)
        bits = hashes[i] * _BIT_FACTOR
        for _ in range(N_BITS):
            bit = bits & _511
            word = line + np.int64(bit >> _6)
            put(filter_out, word, at(filter_out, word) | _ONE << (bit & _63))
            bits >>= _9


@helper
def _queue_kind(kind, weight, seed, first, m, prefix, queued, tokens, rolling, windows):
    """Queue the windows of a kind that end with token m - 1, from the one that begins at token `first` on.

    Return the first token of the next window, and the number of windows in the queue.
    """
    _, _, _, totals = tokens
    prefixes, powers = rolling
    queue_hash, queue, filter_, n_lines = windows
    total = np.int64(at(totals, m & MASK))
    while first < m and total - at(totals, first & MASK) >= weight:
        g = mix((prefix - at(prefixes, first & MASK) * at(powers, m - first)) ^ seed)
        put(queue_hash, queued, g)
        put(queue, queued, first << _FIRST_SHIFT | (m - first) << 1 | kind)
        if n_lines:
            prefetch(filter_, _line(g, n_lines))
        queued += 1
        first += 1
    return first, queued


@helper
def _queue(n, full, short, tokens, rolling, windows, state):
    """Queue the windows that end with tokens that are new; return their number."""
    units, _, _, _ = tokens
    prefixes, _ = rolling
    m = np.int64(at(state, N_ROLLED))
    next_full, next_short = np.int64(at(state, NEXT_FULL)), np.int64(at(state, NEXT_SHORT))
    prefix = at(prefixes, m & MASK)
    queued = np.int64(0)
    while m < n:
        prefix = prefix * BASE + at(units, m & MASK)
        m += 1
        put(prefixes, m & MASK, prefix)
        next_full, queued = _queue_kind(FULL, full, _ZERO, next_full, m, prefix, queued, tokens, rolling, windows)
        if short:
            next_short, queued = _queue_kind(
                SHORT, short, _SHORT_SEED, next_short, m, prefix, queued, tokens, rolling, windows
            )
    put(state, N_ROLLED, m)
    put(state, NEXT_FULL, next_full)
    put(state, NEXT_SHORT, next_short)
    return queued


@helper
def _flush(row, queued, tokens, windows, hashes, fields, k):
    """Write the queued windows that the filter knows; return the position after them."""
    _, begins, ends, _ = tokens
    queue_hash, queue, filter_, n_lines = windows
    for q in range(queued):
        g = at(queue_hash, q)
        if n_lines == 0 or (_may_be_known(filter_, n_lines, g) and _is_known(filter_, n_lines, g)):
            packed = np.int64(at(queue, q))
            first = packed >> _FIRST_SHIFT
            end = first + (packed >> 1 & _N_MASK)
            put(hashes, k, g)
            put(fields, k * N_FIELDS, row)
            put(fields, k * N_FIELDS + 1, at(begins, first & MASK))
            put(fields, k * N_FIELDS + 2, at(ends, (end - 1) & MASK))
            put(fields, k * N_FIELDS + 3, first)
            put(fields, k * N_FIELDS + 4, end)
            put(fields, k * N_FIELDS + 5, packed & 1)
            k += 1
    return k


@kernel(
    types.int64(
        *(U8_IN, I64_IN, I64_IN, U8_IN, U16_IN, U32_IN, U32_IN, U64_IN, U64_IN, types.int64, types.int64),
        *(U64_OUT, I64_OUT, U64_OUT, I64_OUT, I64_OUT, I64_OUT, U64_OUT, I64_OUT),
    )
)
def _scan(
    data,
    starts,
    ends,
    ascii_in,
    pages_in,
    entries_in,
    letters_in,
    powers_in,
    filter_in,
    full,
    short,
    units_out,
    places_out,
    queue_hash_out,
    queue_out,
    state_out,
    totals_out,
    hashes_out,
    fields_out,
):
    """Write windows of the rows from state[ROW] on to `hashes` and `fields`, as many as fit; return their number.

    There must be room for a full queue. `totals` gets (tokens, weight) of each row that is finished; when all are done,
    state[ROW] is their number.
    """
    source, state = pointer(data), pointer(state_out)
    tables = (pointer(ascii_in), pointer(pages_in), pointer(entries_in), pointer(letters_in))
    totals = pointer(places_out[2 * RING :])
    tokens = (pointer(units_out), pointer(places_out), pointer(places_out[RING:]), totals)
    rolling = (pointer(units_out[RING:]), pointer(powers_in))
    n_lines = filter_in.size // LINE_WORDS
    windows = (pointer(queue_hash_out), pointer(queue_out), pointer(filter_in), n_lines)
    hashes, fields = pointer(hashes_out), pointer(fields_out)
    limit = hashes_out.size - MOST_QUEUED
    k = np.int64(0)
    row = np.int64(at(state, ROW))
    p = np.int64(at(state, PLACE))
    while row < starts.size:
        e = at(ends, row)
        if p < 0:
            p = at(starts, row)
            for item in range(N_READ, N_STATE):
                put(state, item, np.int64(0))
            put(units_out, RING, _ZERO)
            put(totals, 0, np.int64(0))
        n = np.int64(at(state, N_TOKENS))
        j = np.int64(at(state, N_READ))
        while p < e:
            if j == 0 and p + BLOCK_BYTES <= data.size and at(source, p) < 128 and at(source, p + 1) < 128:
                after, n = add_ascii_words(source, p, e, n, tokens)
            else:
                after = p
            if after > p:
                p = after
            else:
                p, j, n = add_token(source, p, e, j, n, tokens, tables)
            if n - np.int64(at(state, N_ROLLED)) >= QUEUE:
                queued = _queue(n, full, short, tokens, rolling, windows, state)
                k = _flush(row, queued, tokens, windows, hashes, fields, k)
                if k > limit:
                    put(state, ROW, row)
                    put(state, PLACE, p)
                    put(state, N_READ, j)
                    put(state, N_TOKENS, n)
                    return k
        queued = _queue(n, full, short, tokens, rolling, windows, state)
        k = _flush(row, queued, tokens, windows, hashes, fields, k)
        put(totals_out, 2 * row, n)
        put(totals_out, 2 * row + 1, at(totals, n & MASK))
        row += 1
        p = np.int64(-1)
        if k > limit:
            break
    put(state, ROW, row)
    put(state, PLACE, p)
    return k


@kernel(types.void(U8_IN, I64_IN, I64_IN, U8_IN, I64_IN, I64_IN, U8_IN, U16_IN, U32_IN, U32_IN, I64_OUT))
def _match_all(data, starts, ends, items, firsts, lasts, whole, pages_in, entries_in, letters_in, out):
    one, two = pointer(data), pointer(items)
    pages, entries, letters = pointer(pages_in), pointer(entries_in), pointer(letters_in)
    for i in range(starts.size):
        p = at(starts, i)
        e = at(ends, i)
        q = at(firsts, i)
        f = at(lasts, i)
        j = np.int64(0)
        k = np.int64(0)
        previous = np.int64(-1)
        result = np.int64(-1)
        after = p
        while True:
            a, size, parted_a, p, j = next_letter(one, p, e, j, pages, entries, letters)
            b, size_b, parted_b, q2, k = next_letter(two, q, f, k, pages, entries, letters)
            tied = previous == WORD  # whether a letter of a word that follows here belongs to the same word
            if at(whole, i):
                if b < 0:  # all of the item was met: the next letter of the text must not continue its last word
                    if a < 0 or parted_a or size != WORD or not tied:
                        result = after
                    break
            elif a < 0:
                if b < 0 or parted_b or size_b != WORD or not tied:
                    result = q
                break
            if a != b or size != size_b or (tied and size == WORD and parted_a != parted_b):
                break
            q = q2
            after = p
            previous = size
        put(out, i, result)


# -- for Python --------------------------------------------------------------------------------------------------------
class Windows(NamedTuple):
    """Windows of some rows: their hashes, and FIELDS of each (`start` and `end` are bytes of the data)."""

    hashes: NDArray[np.uint64]
    fields: NDArray[np.int64]

    def field(self, name: str) -> NDArray[np.int64]:
        return self.fields[:, FIELDS.index(name)]


@dataclass
class Scanner:
    """Finds windows of texts; keeps the tables and the room that it works in.

    `words`: of a window; `short_words`: of the smaller ones, 0 for none. `filter`: from `new_filter`; None lets all
    windows pass.
    """

    folding: Folding
    words: int = 13
    short_words: int = 0
    filter: NDArray[np.uint64] | None = None
    room: int = 1 << 14
    _tables: tuple[Any, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not 1 <= self.words <= MAX_WORDS or not 0 <= self.short_words <= self.words:
            raise ValueError(f"Scanner: windows of {self.words} and {self.short_words} words; at most {MAX_WORDS}")
        known = np.empty(0, np.uint64) if self.filter is None else self.filter
        self._tables = (self.folding.ascii(), *self.folding, _powers(), known)

    def scan(self, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64], totals: Any) -> Any:
        """Yield Windows of the rows data[starts[i]:ends[i]), some thousand at a time, in order.

        `totals`: gets the tokens and the weight of each row, two int64 each.
        """
        work = (np.zeros(2 * RING, np.uint64), np.zeros(3 * RING, np.int64))
        queues = (np.zeros(MOST_QUEUED, np.uint64), np.zeros(MOST_QUEUED, np.int64))
        state = np.zeros(N_STATE, np.int64)
        state[PLACE] = -1
        hashes, fields = np.empty(self.room, np.uint64), np.empty(self.room * N_FIELDS, np.int64)
        weights = self.words * WEIGHT_OF_WORD, self.short_words * WEIGHT_OF_WORD
        while state[ROW] < len(starts):
            n = _scan(
                data, starts, ends, *self._tables, *weights, *work, *queues, state, totals.reshape(-1), hashes, fields
            )
            if n:
                yield Windows(hashes[:n].copy(), fields[: n * N_FIELDS].reshape(-1, N_FIELDS).copy())


@functools.cache
def _powers() -> NDArray[np.uint64]:
    """Return the powers of the base of the hashes of windows, modulo 2^64."""
    return np.array([pow(int(BASE), k, 1 << 64) for k in range(RING)], np.uint64)


def new_filter(n_ngrams: int) -> NDArray[np.uint64]:
    """Return an empty filter for so many n-grams.

    >>> new_filter(1_000_000).nbytes <= 2_000_000
    True
    """
    return np.zeros(max(1, -(-n_ngrams * BITS_PER_NGRAM // (64 * LINE_WORDS))) * LINE_WORDS, np.uint64)


def add_all(hashes: NDArray[np.uint64], known: NDArray[np.uint64]) -> None:
    """Add n-grams to a filter."""
    _add_all(np.ascontiguousarray(hashes), known)


def match_all(
    folding: Folding,
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    items: NDArray[np.uint8],
    firsts: NDArray[np.int64],
    lasts: NDArray[np.int64],
    whole: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """Compare data[starts[i]:ends[i]) with items[firsts[i]:lasts[i]) token by token.

    Return where in the items the passage of the text ends; where `whole`, where in the data the item ends, which may
    be anywhere before ends[i]; -1 where they differ.
    """
    out = np.empty(len(starts), np.int64)
    _match_all(data, starts, ends, items, firsts, lasts, whole.view(np.uint8), *folding, out)
    return out
