"""Words of each document: longest, common and symbol words, repeated n-grams.

One pass splits, hashes and looks up every word; n-grams grow from there (`_ngrams`). Memory: about 100 bytes per word
of the document with the most words, up to MAX_WORDS; documents with more are split in pieces, and their n-grams are
counted by `long_repetition`.
"""
# Compiled functions carry their types in the signatures of the kernels; numbers there change from int to int64.
# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.language import types
from tamis.kernels.language.intrinsics import at, count_bits, pointer, put
from tamis.kernels.language.jit import helper, kernel
from tamis.kernels.language.types import F64_OUT, I32_OUT, I64_IN, I64_OUT, U8_IN, U8_OUT, U16_IN, U64_IN, U64_OUT
from tamis.kernels.text._blocks import PAD
from tamis.kernels.text._counts import by_name, put_counts, room_for
from tamis.kernels.text._ngrams import (
    DUPLICATE,
    FILTER,
    GOPHER_DUPLICATE,
    GOPHER_TOP,
    MAX_N,
    TOP,
    WIDTH,
    empty_filter,
    joined,
    levels,
    note,
)
from tamis.kernels.text._unicode import FLAGS, PAGE_OF, SPACE, SYMBOL, TERMINAL, back, decode, flags_of
from tamis.kernels.text._words import K1, K2, K3, read_word, split_words

COUNTS = {
    "longest_word": "Characters of the longest word, 0 without words.",
    "symbol_words": "Words that are an ellipsis mark, or in which runs of # outnumber half the characters.",
    "common_words": "Words equal to one of: the be to of and that have with (lower case only).",
    "distinct_common_words": "How many of those eight words occur.",
    "non_symbol_words": "Words with a character outside Gopher's punctuation list (datatrove's).",
    "non_symbol_word_chars": "Characters of those words.",
}
COMMON_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
PIECE = 1 << 18  # bytes of a document that are split at once; a longer word is a separate piece
N_MARKS = PIECE + 128


SYMBOL_WORDS = ("...", "[...]", "…", "(...)", "[…]", "-»")  # the original's ellipsis marks that can be words
MAX_WORDS = 1 << 19
MAX_BYTES = 1 << 24
_COMMON_BITS, _SYMBOL_BIT = 255, 256
_BUCKETS = 256


@helper
def _is_hash_symbol(source, p, e, n_chars):
    """Return True if there are more runs of # than half the characters, which means: #, #a#, #a#b#, ..."""
    odd = n_chars % 2 == 0
    if odd:
        return False
    while p < e:
        code, p = decode(source, p, e)
        if (code == 35) == odd:
            return False
        odd = not odd
    return True


@helper
def _has_other(source, p, e, pages, flags):
    """Return True if a character of the word is not in datatrove's punctuation."""
    while p < e:
        code, p = decode(source, p, e)
        if flags_of(pages, flags, code) & (SYMBOL | TERMINAL) == 0:
            return True
    return False


@helper
def piece_end(source, p, e, pages, flags):
    """Return the position at which to cut a text from p on so that words stay whole: after whitespace, or e."""
    if e - p <= PIECE:
        return e
    q = p + PIECE
    while q > p:
        begin = back(source, p, q)
        code, after = decode(source, begin, e)
        if flags_of(pages, flags, code) & SPACE:
            return after
        q = begin
    q = p + PIECE  # inside one long word: its end
    while q < e and at(source, q) & 0xC0 == 0x80:
        q += 1
    while q < e:
        code, after = decode(source, q, e)
        if flags_of(pages, flags, code) & SPACE:
            return after
        q = after
    return e


def _hash(word: str) -> int:
    """Read a word of up to eight bytes as `_words.read_word` does."""
    data, most = word.encode(), (1 << 64) - 1
    h = int.from_bytes(data, "little") * int(K1) & most
    h = (h ^ h >> 32) * int(K2) & most
    h = (h ^ h >> 29 ^ len(data)) * int(K3) & most
    return h ^ h >> 32


@functools.cache
def _lists() -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return (hash, meaning) of the words looked for, each in the bucket of its low bits; no two share one."""
    hashes = np.array([_hash(word) for word in COMMON_WORDS + SYMBOL_WORDS], np.uint64)
    meanings = [1 << k for k in range(len(COMMON_WORDS))] + [_SYMBOL_BIT] * len(SYMBOL_WORDS)
    buckets = (hashes & np.uint64(_BUCKETS - 1)).astype(np.int64)
    listed, bits = np.zeros(_BUCKETS, np.uint64), np.zeros(_BUCKETS, np.uint64)
    listed[buckets], bits[buckets] = hashes, np.array(meanings, np.uint64)
    if np.count_nonzero(bits) != hashes.size:
        raise AssertionError("word_stats: two listed words share a bucket; change _BUCKETS")
    return listed, bits


@kernel(
    types.void(
        *(U8_IN, I64_IN, I64_IN, I64_IN, I64_IN, U8_IN, U16_IN, U64_IN, U64_IN),
        *(types.boolean, types.int64, types.int64, types.int64, types.int64, types.int64, U8_OUT, I32_OUT, I32_OUT),
        *(I32_OUT, I32_OUT, I32_OUT, I32_OUT, U64_OUT, U64_OUT, U8_OUT, U8_OUT, I64_OUT, F64_OUT),
    )
)
def _words(
    data,
    starts,
    ends,
    n_words_in,
    n_chars_in,
    pages_in,
    flags_in,
    listed_in,
    bits_in,
    want_symbols,
    last_n,
    duplicates,
    tops,
    joins,
    max_words,
    pad_out,
    marks_out,
    totals_out,
    ids_out,
    counts_out,
    firsts_out,
    places_out,
    table_out,
    hashes_out,
    filter_out,
    text_out,
    out,
    fractions_out,
):
    source, pad, pages, flags = pointer(data), pointer(pad_out), pointer(pages_in), pointer(flags_in)
    listed, bits_of, marks, totals = pointer(listed_in), pointer(bits_in), pointer(marks_out), pointer(totals_out)
    ids, counts, firsts, places = pointer(ids_out), pointer(counts_out), pointer(firsts_out), pointer(places_out)
    table, text, hashes, filter_ = pointer(table_out), pointer(text_out), pointer(hashes_out), pointer(filter_out)
    size = data.size
    epoch = np.uint64(0)
    for row in range(starts.size):
        p = s = at(starts, row)
        e = at(ends, row)
        longest = n_symbols = n_common = seen = n_other = n_other_chars = 0
        whole = (last_n > 0 or joins > 0) and 0 < at(n_words_in, row) <= max_words and e - s <= MAX_BYTES
        n_slots = 16
        while whole and n_slots < 2 * at(n_words_in, row):
            n_slots *= 2
        if whole:
            empty_filter(filter_, FILTER * n_slots)
        total = 0
        n_words = 0
        while p < e:
            end = e if whole else piece_end(source, p, e, pages, flags)
            n_words = split_words(source, size, p, end, p, marks_out.size // 2 - 64, pad, pages, flags, marks)
            for k in range(n_words):
                begin = p + at(marks, 2 * k)
                n_bytes = p + at(marks, 2 * k + 1) - begin
                h, n_chars, first = read_word(source, size, begin, n_bytes)
                longest = max(longest, n_chars)
                # A word of the lists sits where its hash says; no branch, for every sixth word is one.
                bucket = np.int64(h & np.uint64(_BUCKETS - 1))
                bits = np.int64(at(bits_of, bucket) if at(listed, bucket) == h else np.uint64(0))
                seen |= bits
                n_common += bits & _COMMON_BITS != 0
                n_symbols += bits >> 8
                c = np.int64(first & np.uint64(255))
                if c == 35:
                    n_symbols += _is_hash_symbol(source, begin, begin + n_bytes, n_chars)
                if whole:
                    put(totals, k, np.int32(total))
                    total += n_chars
                    put(hashes, k, h)
                    note(filter_, FILTER * n_slots, h)
                if want_symbols:
                    letter = (97 <= c | 32 <= 122) or (48 <= c <= 57)
                    if letter or _has_other(source, begin, begin + n_bytes, pages, flags):
                        n_other += 1
                        n_other_chars += n_chars
            p = end
        n_distinct = count_bits(np.uint64(seen & _COMMON_BITS))
        put_counts(out, row, (longest, n_symbols, n_common, n_distinct, n_other, n_other_chars))
        if last_n == 0 and joins == 0:
            continue
        for n in range(MAX_N + 1):
            put(fractions_out, row * WIDTH + TOP + n, 1.0)
            put(fractions_out, row * WIDTH + DUPLICATE + n, 1.0)
            put(fractions_out, row * WIDTH + GOPHER_TOP + n, 0.0)
            put(fractions_out, row * WIDTH + GOPHER_DUPLICATE + n, 0.0)
        if not whole:
            continue
        put(totals, n_words, np.int32(total))
        n_chars = at(n_chars_in, row)
        base = row * WIDTH
        if last_n > 0:
            work = (table, n_slots, epoch, marks, totals, ids, counts, firsts, places, hashes, filter_)
            epoch = levels(
                source, size, s, e, n_words, n_chars, last_n, duplicates, tops, work, pad, fractions_out, base
            )
        if joins > 0:
            work = (table, n_slots, epoch, marks, totals, ids, counts, firsts, places, hashes, filter_)
            epoch = joined(source, size, s, n_words, n_chars, joins, work, text, fractions_out, base)


class FractionRequest(NamedTuple):
    """The fractions to compute besides the counts: `duplicates`, `tops`, `joins` have bit n for n-grams of n words."""

    symbols: bool = False
    last_n: int = 0  # Gopher's top n-grams, n from 2 to last_n
    duplicates: int = 0  # the original's duplicate n-grams, n <= last_n
    tops: int = 0  # the original's top n-grams, n <= last_n
    joins: int = 0  # Gopher's duplicate n-grams


def word_counts(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    n_words: NDArray[np.int64],
    n_chars: NDArray[np.int64],
    wanted: FractionRequest,
    max_words: int = MAX_WORDS,
) -> tuple[dict[str, NDArray[np.int64]], NDArray[np.float64]]:
    """Return one array per name of COUNTS, and fractions[row, kind + n] (see `_ngrams`).

    The last two of COUNTS are zeros unless requested. `n_words` and `n_chars` are those of each document. Documents
    of more
    than `max_words` words or MAX_BYTES bytes have no fractions.
    """
    out = room_for(COUNTS, starts.size)
    grams = wanted.last_n > 0 or wanted.joins > 0
    most = int(n_words[n_words <= max_words].max(initial=0)) if grams else 0
    longest = int((ends - starts).max(initial=0)) if wanted.joins else 0
    marks = np.empty(max(N_MARKS, 2 * most + 128), np.int32)
    arrays = [np.empty(most + 2, np.int32) for _ in range(5)]
    table = np.zeros(2 * max(16, 1 << (2 * most).bit_length()), np.uint64)
    hashes, filter_ = np.empty(most, np.uint64), np.empty(FILTER * table.size // 2, np.uint8)
    text = np.empty(min(longest, MAX_BYTES) + 64, np.uint8)
    fractions = np.empty(starts.size * WIDTH if grams else 0, np.float64)
    _words(
        *(data, starts, ends, n_words, n_chars, PAGE_OF, FLAGS, *_lists(), wanted.symbols, wanted.last_n),
        *(
            wanted.duplicates,
            wanted.tops,
            wanted.joins,
            max_words,
            np.zeros(PAD, np.uint8),
            marks,
            *arrays,
            table,
            hashes,
            filter_,
            text,
            out,
            fractions,
        ),
    )
    return by_name(COUNTS, out), fractions.reshape(-1, WIDTH)
