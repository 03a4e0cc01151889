"""Token ids of texts from those of their words (word_table.py): cut a text into words, look each up, and join the ids.

A class for each byte and some patterns say how texts are cut: bytes separate words, are a word each, or are parts of
words; patterns of several bytes separate words, or mark the text as one that cannot be cut (`aside`). Only as much of
a text is read as the requested ids need: a beginning of `n_chars` characters, and four times as much while that gives
too few. A text with words that are not in the table gets no ids; these words are returned. Memory: 16 bytes per
missing word, 4 per id, 24 per text. Time: O(bytes read).
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.language import types
from tamis.kernels.language.intrinsics import at, count_bits, mask_ge, mask_lt, pointer, put
from tamis.kernels.language.jit import helper, kernel
from tamis.kernels.language.types import I32_IN, I32_OUT, I64_IN, I64_OUT, U8_IN, U8_OUT, U64_IN
from tamis.kernels.tokens.word_table import HEAD, N_IDS, USED_AGAIN, USES, WordTable, find_word

WORD, SEPARATOR, SINGLE = 0, 1, 2  # classes of bytes
_LOOK = 4  # added to a class: a pattern may begin here
NOT_LOOKED_AT, DONE, MISSING, ASIDE = 0, 1, 2, 3  # what became of a text
ALL_CHARS = np.iinfo(np.int64).max
_MAX_MISSING = 1 << 16  # missing words returned by one call
_ROOM = 1 << 16  # ids that there is room for at first


@helper
def _after_chars(source, p, e, n_chars):
    """Return the position at which the first `n_chars` characters of source[p:e) end."""
    if e - p <= n_chars:
        return e
    while n_chars >= 64 and p + 64 <= e:
        n_chars -= 64 - count_bits(mask_ge(source, p, 128) & mask_lt(source, p, 192))
        p += 64
    while p < e:
        if at(source, p) & 0xC0 != 0x80:
            if n_chars == 0:
                return p
            n_chars -= 1
        p += 1
    return e


@helper
def _pattern_at(source, p, e, firsts, ends, patterns):
    """Return the index of the pattern that source[p:e) begins with, or -1."""
    c = np.int64(at(source, p))
    for k in range(np.int64(at(firsts, c)), np.int64(at(firsts, c + 1))):
        begin = np.int64(at(ends, k))
        n = np.int64(at(ends, k + 1)) - begin
        if n <= e - p:
            i = 1
            while i < n and at(source, p + i) == at(patterns, begin + i):
                i += 1
            if i == n:
                return np.int64(k)
    return np.int64(-1)


@helper
def _append(pool, record, out, to, n_ids, most):
    """Put the ids of a word behind the `n_ids` that are there, as far as `most` are wanted; how many there are then."""
    n = np.int64(at(pool, record + N_IDS))
    for k in range(min(n, most - n_ids)):
        put(out, to + n_ids + k, at(pool, record + HEAD + k))
    uses = at(pool, record + USES)
    if uses < USED_AGAIN:
        put(pool, record + USES, uses + 1)
    return n_ids + n


@kernel(
    types.int64(
        *(U8_IN, I64_IN, I64_IN, types.int64, types.int64, types.int64, types.int64, types.int64, I32_IN, I32_IN),
        *(U8_IN, I64_IN, I64_IN, U8_IN, U8_IN, types.int64, types.boolean),
        *(types.int64, types.uint64, U64_IN, I32_OUT, U8_IN, types.uint64, U64_IN, I32_OUT, U8_IN),
        *(I32_OUT, I64_OUT, U8_OUT, I64_OUT, I64_OUT, I64_OUT),
    )
)
def _word_ids(
    data, starts, ends, first_row, first_chars, max_chars, most, enough, before, behind,
    classes_in, firsts_in, pattern_ends_in, patterns_in, is_aside_in, longest, aside_at_end,
    long_from, salt, slots_in, pool_out, pool_bytes_in, long_salt, long_slots_in, long_pool_out, long_bytes_in,
    out, lengths, status, missing_starts, missing_ends, counts,
):  # fmt: skip
    """Return the first row that was not processed for lack of room.

    counts: (ids, words reported).
    """
    source, classes = pointer(data), pointer(classes_in)
    firsts, pattern_ends, patterns, is_aside = (
        pointer(firsts_in), pointer(pattern_ends_in), pointer(patterns_in), pointer(is_aside_in),
    )  # fmt: skip
    slots, pool, pool_bytes = pointer(slots_in), pointer(pool_out), pointer(pool_bytes_in)
    long_slots, long_pool, long_bytes = pointer(long_slots_in), pointer(long_pool_out), pointer(long_bytes_in)
    ids = pointer(out)
    n_out = at(counts, 0)
    n_missing = at(counts, 1)
    size = data.size
    for row in range(first_row, starts.size):
        if n_out + before.size + most + behind.size > out.size:
            return row
        start = at(starts, row)
        end = at(ends, row)
        missing_before = n_missing
        to = n_out + before.size
        n_chars = first_chars
        state = NOT_LOOKED_AT
        while state == NOT_LOOKED_AT:
            e = _after_chars(source, start, end, min(n_chars, max_chars))
            p = start
            begin = start
            n_ids = 0
            is_missing = False
            after_separator = np.int64(-1)
            while True:
                kind = np.int64(SEPARATOR)
                step = np.int64(1)
                if p < e:
                    kind = np.int64(at(classes, np.int64(at(source, p))))
                    if kind >= _LOOK:
                        kind -= _LOOK
                        k = _pattern_at(source, p, e, firsts, pattern_ends, patterns)
                        if k >= 0:
                            if at(is_aside, k) != 0:
                                state = ASIDE
                                break
                            kind = np.int64(SEPARATOR)
                            step = np.int64(at(pattern_ends, k + 1)) - np.int64(at(pattern_ends, k))
                    if kind == WORD:
                        p += 1
                        continue
                # A word ends here; and where this is a word of its own, that is the next one.
                word_end = p
                while True:
                    n = word_end - begin
                    if n > 0:
                        if n < long_from:
                            record = find_word(source, size, begin, n, salt, slots, slots_in.size, pool, pool_bytes)
                            if record >= 0:
                                n_ids = _append(pool, record, ids, to, n_ids, most)
                        else:
                            record = find_word(
                                source, size, begin, n, long_salt, long_slots, long_slots_in.size, long_pool, long_bytes
                            )
                            if record >= 0:
                                n_ids = _append(long_pool, record, ids, to, n_ids, most)
                        if record < 0:
                            is_missing = True
                            n_ids += 1
                            if n_missing < missing_starts.size:
                                put(missing_starts, n_missing, begin)
                                put(missing_ends, n_missing, word_end)
                                n_missing += 1
                    begin = word_end
                    if kind != SINGLE or word_end > p:
                        break
                    word_end = p + 1
                if p >= e or (n_ids >= most and p + longest <= e):
                    break
                p += step
                begin = p
                if kind == SEPARATOR:
                    after_separator = p
            if state == ASIDE:
                break
            # What ends well before e is whole, and so are its ids; the last word, or a pattern, may be cut there.
            needed = most if p + longest <= e else enough
            if n_ids < needed and aside_at_end and after_separator == e:
                state = ASIDE
            elif n_ids < needed and e < end and n_chars < max_chars and not is_missing:
                n_chars *= 4
            else:
                state = MISSING if is_missing else DONE
        put(status, row, state)
        if state == ASIDE:
            n_missing = missing_before
        if state == DONE:
            for k in range(before.size):
                put(ids, n_out + k, at(before, k))
            n_out = to + min(n_ids, most)
            for k in range(behind.size):
                put(ids, n_out + k, at(behind, k))
            n_out += behind.size
            put(lengths, row, n_out - to + before.size)
        else:
            put(lengths, row, 0)
        put(counts, 0, n_out)
        put(counts, 1, n_missing)
    return starts.size


class Cut:
    """How texts are cut into words.

    separators: characters between words; singles: characters of ASCII that are a word each; aside: strings that make
    a text one that cannot be cut; aside_at_end: so does a separator at the end of what is looked at. All other
    characters are parts of words.
    """

    def __init__(self, separators: str, singles: str, aside: Sequence[str], aside_at_end: bool = False) -> None:
        if not all(aside):
            raise ValueError("Cut: an empty string is in every text, so that none could be cut")
        self.classes = np.full(256, WORD, np.uint8)
        self.classes[[ord(c) for c in singles]] = SINGLE
        self.classes[[ord(c) for c in separators if ord(c) < 128]] = SEPARATOR
        wide = [(c.encode(), 0) for c in separators if ord(c) >= 128]
        special = sorted([*wide, *((text.encode(), 1) for text in set(aside))])
        for pattern, _ in special:
            self.classes[pattern[0]] |= _LOOK
        self.firsts = np.searchsorted([p[0] for p, _ in special], np.arange(257)).astype(np.int64)
        self.ends = np.cumsum([0, *(len(p) for p, _ in special)]).astype(np.int64)
        self.patterns = np.frombuffer(b"".join(p for p, _ in special), np.uint8)
        self.is_aside = np.array([one for _, one in special], np.uint8)
        self.longest, self.aside_at_end = max((len(p) for p, _ in special), default=1), aside_at_end


class IdRequest(NamedTuple):
    """How many ids of each text are requested: at most `most` of words, between `before` and `behind`.

    At most the first `max_chars` characters are read, and fewer where the whole words of `first_chars`, or of four
    times that, and so on, have `most` ids, or all of these characters `enough`: a word that is cut there may have
    other ids than the whole one.
    """

    most: int
    enough: int
    first_chars: int = ALL_CHARS
    max_chars: int = ALL_CHARS
    before: NDArray[np.int32] = np.zeros(0, np.int32)
    behind: NDArray[np.int32] = np.zeros(0, np.int32)


class WordIds(NamedTuple):
    """Ids of the texts that are DONE, one text after the other; `lengths` is 0 for the other texts.

    Words that were not in the table are data[missing_starts[i]:missing_ends[i]).
    """

    ids: NDArray[np.int32]
    lengths: NDArray[np.int64]
    status: NDArray[np.uint8]
    missing_starts: NDArray[np.int64]
    missing_ends: NDArray[np.int64]


def word_ids(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    cut: Cut,
    wanted: IdRequest,
    words: WordTable,
    long_words: WordTable,
    long_from: int,
) -> WordIds:
    """Return the ids of the texts data[starts[i]:ends[i]).

    Words of `long_from` bytes or more are looked up in `long_words`.
    """
    lengths, status = np.zeros(starts.size, np.int64), np.zeros(starts.size, np.uint8)
    missing_starts, missing_ends, counts = (
        np.empty(_MAX_MISSING, np.int64),
        np.empty(_MAX_MISSING, np.int64),
        np.zeros(2, np.int64),
    )
    most = wanted.before.size + wanted.most + wanted.behind.size
    out, row = np.empty(min(most * starts.size, max(_ROOM, most)), np.int32), 0
    while True:
        row = _word_ids(
            *(data, starts, ends, row, wanted.first_chars, wanted.max_chars, wanted.most, wanted.enough),
            *(wanted.before, wanted.behind, cut.classes, cut.firsts, cut.ends, cut.patterns, cut.is_aside),
            *(cut.longest, cut.aside_at_end, long_from, words.salt, words.slots, words.pool, words.pool_bytes),
            *(long_words.salt, long_words.slots, long_words.pool, long_words.pool_bytes),
            *(out, lengths, status, missing_starts, missing_ends, counts),
        )
        n_ids, n_missing = (int(n) for n in counts)
        if row >= starts.size:
            return WordIds(out[:n_ids], lengths, status, missing_starts[:n_missing], missing_ends[:n_missing])
        larger = np.empty(max(2 * out.size, n_ids + most), np.int32)
        larger[:n_ids] = out[:n_ids]
        out = larger
