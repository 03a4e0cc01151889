"""N-grams of normalised words (folding.py): those of a text that a filter knows, and whether two passages are equal.

A text is a sequence of tokens; a window begins at every token and ends with the token at which it first weighs
`full`: 13 words, or 26 Chinese characters, by default. Its hash is that of the 64-bit hashes of its tokens, rolled as
a difference of two prefix sums, so that windows of any number of tokens cost the same. Windows of the smaller weight
`short` are hashed apart, for items that are no longer than that.

The filter is a blocked Bloom filter: 64 bytes by the upper half of a hash, and in these N_BITS bits, so that a lookup
is one access to memory. Windows wait in a queue while their lines are on the way. With 15 bits for each n-gram about
one window in a thousand passes by chance; what passes is looked up in an exact table (dedup/contamination/index.py).

Memory: 20 kB whatever the length of the text. Time: linear.
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.language import types
from tamis.kernels.language.intrinsics import at, pointer, prefetch, put
from tamis.kernels.language.jit import helper, kernel
from tamis.kernels.language.types import I64_IN, I64_OUT, U8_IN, U16_IN, U32_IN, U64_IN, U64_OUT
from tamis.kernels.overlap.folding import (
    IGNORED,
    KIND_SHIFT,
    LETTER,
    N_SHIFT,
    SEPARATOR,
    SIZE_SHIFT,
    WEIGHT_OF_WORD,
    WORD,
    Folding,
)
from tamis.kernels.overlap.letters import CODE_MASK, entry_at, next_letter, weight_of
from tamis.kernels.sketch._shingles import BASE, mix

BITS_PER_NGRAM = 15
N_BITS = 7
LINE_WORDS = 8  # of 64 bits: one line of the cache
MAX_WORDS = 60  # in a window
RING = 256  # a power of two above the tokens of a window
FULL, SHORT = 0, 1
"""Kinds of windows."""
FIELDS = ("row", "start", "end", "token", "token_end", "kind")
N_FIELDS = 6
QUEUE = 64
_LETTER_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_BIT_FACTOR = np.uint64(0xD6E8FEB86659FD93)
_SHORT_SEED = np.uint64(0xA0761D6478BD642F)
_MASK = RING - 1
_32, _6, _9, _63, _511 = (np.uint64(n) for n in (32, 6, 9, 63, 511))
_ZERO, _ONE = np.uint64(0), np.uint64(1)
# Items of the state.
PLACE, ROW, N_TOKENS, WEIGHT, NEXT_FULL, NEXT_SHORT, QUEUED = range(7)
N_STATE = 8


@helper
def _line(g, n_lines):
    return np.int64((g >> _32) * np.uint64(n_lines) >> _32) * LINE_WORDS


@helper
def _is_known(filter_, n_lines, g):
    if n_lines == 0:
        return True
    line = _line(g, n_lines)
    bits = g * _BIT_FACTOR
    for _ in range(N_BITS):
        bit = bits & _511
        if at(filter_, line + np.int64(bit >> _6)) >> (bit & _63) & _ONE == _ZERO:
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
def _wait(g, row, i, n, end, kind, state, begins, queue_hash, queue, filter_, n_lines):
    q = np.int64(at(state, QUEUED))
    put(queue_hash, q, g)
    put(queue, q * N_FIELDS, row)
    put(queue, q * N_FIELDS + 1, at(begins, i & _MASK))
    put(queue, q * N_FIELDS + 2, end)
    put(queue, q * N_FIELDS + 3, i)
    put(queue, q * N_FIELDS + 4, n)
    put(queue, q * N_FIELDS + 5, kind)
    if n_lines:
        prefetch(filter_, _line(g, n_lines))
    put(state, QUEUED, q + 1)


@helper
def _add_token(u, begin, end, weight, row, full, short, rings, state, queues, filter_, n_lines):
    """Take one more token; queue the windows that end with it."""
    prefixes, powers, begins, weights = rings
    queue_hash, queue = queues
    n = np.int64(at(state, N_TOKENS))
    total = np.int64(at(state, WEIGHT))
    prefix = at(prefixes, n & _MASK) * BASE + u
    put(begins, n & _MASK, begin)
    put(weights, n & _MASK, total)
    n += 1
    total += weight
    put(prefixes, n & _MASK, prefix)
    i = np.int64(at(state, NEXT_FULL))
    while i < n and total - at(weights, i & _MASK) >= full:
        g = mix(prefix - at(prefixes, i & _MASK) * at(powers, n - i))
        _wait(g, row, i, n, end, FULL, state, begins, queue_hash, queue, filter_, n_lines)
        i += 1
    put(state, NEXT_FULL, i)
    if short:
        i = np.int64(at(state, NEXT_SHORT))
        while i < n and total - at(weights, i & _MASK) >= short:
            g = mix((prefix - at(prefixes, i & _MASK) * at(powers, n - i)) ^ _SHORT_SEED)
            _wait(g, row, i, n, end, SHORT, state, begins, queue_hash, queue, filter_, n_lines)
            i += 1
        put(state, NEXT_SHORT, i)
    put(state, N_TOKENS, n)
    put(state, WEIGHT, total)


@helper
def _flush(state, queues, filter_, n_lines, hashes, fields, k):
    """Write the queued windows that the filter knows; return the position after them."""
    queue_hash, queue = queues
    for q in range(np.int64(at(state, QUEUED))):
        g = at(queue_hash, q)
        if _is_known(filter_, n_lines, g):
            put(hashes, k, g)
            for j in range(N_FIELDS):
                put(fields, k * N_FIELDS + j, at(queue, q * N_FIELDS + j))
            k += 1
    put(state, QUEUED, np.int64(0))
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
    prefixes_out,
    places_out,
    queue_hash_out,
    queue_out,
    state_out,
    totals_out,
    hashes_out,
    fields_out,
):
    """Windows of the rows from state[ROW] on to `hashes` and `fields`, as many as fit; their number.

    Room must be for two queues. `totals` gets (tokens, weight) of each row that is finished; state[ROW] is the number
    of rows where all is done.
    """
    source, plain = pointer(data), pointer(ascii_in)
    pages, entries, letters = pointer(pages_in), pointer(entries_in), pointer(letters_in)
    filter_, state = pointer(filter_in), pointer(state_out)
    prefixes = pointer(prefixes_out)
    rings = (prefixes, pointer(powers_in), pointer(places_out), pointer(places_out[RING:]))
    queues = (pointer(queue_hash_out), pointer(queue_out))
    hashes, fields = pointer(hashes_out), pointer(fields_out)
    n_lines = filter_in.size // LINE_WORDS
    limit = hashes_out.size - 2 * QUEUE
    k = np.int64(0)
    row = np.int64(at(state, ROW))
    p = np.int64(at(state, PLACE))
    while row < starts.size:
        e = at(ends, row)
        if p < 0:
            p = at(starts, row)
            put(prefixes, 0, _ZERO)
            for item in range(N_TOKENS, QUEUED):
                put(state, item, np.int64(0))
        h = _ZERO
        begin = p
        last = p  # after the last letter of the word at `begin`
        inside = False
        while p < e:
            c = np.int64(at(source, p))
            if c < 128:
                letter = np.int64(at(plain, c))
                if letter != 0:
                    if not inside:
                        inside = True
                        begin = p
                        h = _ZERO
                    h = (h + np.uint64(letter)) * _LETTER_FACTOR
                    p += 1
                    last = p
                    continue
                p += 1
                if not inside:
                    continue
            else:
                entry, after = entry_at(source, p, e, pages, entries)
                kind = entry >> KIND_SHIFT & 3
                size = entry >> SIZE_SHIFT & 3
                if kind == IGNORED:
                    p = after
                    continue
                if kind != SEPARATOR and size == WORD:
                    if not inside:
                        inside = True
                        begin = p
                        h = _ZERO
                    if kind == LETTER:
                        h = (h + np.uint64(entry & CODE_MASK)) * _LETTER_FACTOR
                    else:
                        for j in range(entry >> N_SHIFT):
                            h = (h + np.uint64(at(letters, (entry & CODE_MASK) + j))) * _LETTER_FACTOR
                    p = after
                    last = p
                    continue
                if inside:
                    inside = False
                    _add_token(
                        mix(h), begin, last, WEIGHT_OF_WORD, row, full, short, rings, state, queues, filter_, n_lines
                    )
                if kind != SEPARATOR:
                    n_letters = np.int64(1) if kind == LETTER else entry >> N_SHIFT
                    for j in range(n_letters):
                        code = entry & CODE_MASK
                        if kind != LETTER:
                            code = np.int64(at(letters, code + j))
                        u = mix(np.uint64(code) * _LETTER_FACTOR)
                        _add_token(
                            u, p, after, weight_of(size), row, full, short, rings, state, queues, filter_, n_lines
                        )
                p = after
            if inside:
                inside = False
                _add_token(
                    mix(h), begin, last, WEIGHT_OF_WORD, row, full, short, rings, state, queues, filter_, n_lines
                )
            if at(state, QUEUED) >= QUEUE:
                k = _flush(state, queues, filter_, n_lines, hashes, fields, k)
                if k > limit:
                    put(state, ROW, row)
                    put(state, PLACE, p)
                    return k
        if inside:
            _add_token(mix(h), begin, last, WEIGHT_OF_WORD, row, full, short, rings, state, queues, filter_, n_lines)
        k = _flush(state, queues, filter_, n_lines, hashes, fields, k)
        put(totals_out, 2 * row, at(state, N_TOKENS))
        put(totals_out, 2 * row + 1, at(state, WEIGHT))
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
        powers = np.array([pow(int(BASE), k, 1 << 64) for k in range(RING)], np.uint64)
        known = np.empty(0, np.uint64) if self.filter is None else self.filter
        self._tables = (self.folding.ascii(), *self.folding, powers, known)

    def scan(self, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64], totals: Any) -> Any:
        """Yield Windows of the rows data[starts[i]:ends[i]), some thousand at a time, in order.

        `totals`: gets the tokens and the weight of each row, two int64 each.
        """
        work = (np.zeros(RING, np.uint64), np.zeros(2 * RING, np.int64))
        queues = (np.zeros(QUEUE + RING, np.uint64), np.zeros((QUEUE + RING) * N_FIELDS, np.int64))
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
