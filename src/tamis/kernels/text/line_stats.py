r"""Lines of each document, as text.split("\n") gives them: begins, ends, lengths, repetitions.

One pass finds line feeds by bit masks; everything else happens once per line. Repeated lines are found by a set of
128-bit hashes. Memory: 48 bytes per line of the document with the most lines, at most 24 MB; a document with more lines
than that holds is gone through several times, each time for a part of the hashes.
"""
# Compiled functions carry their types in the signatures of the kernels; numbers there change from int to int64.
# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.language import types
from tamis.kernels.language.intrinsics import at, pointer
from tamis.kernels.language.jit import helper, kernel
from tamis.kernels.language.types import I64_IN, I64_OUT, U8_IN, U8_OUT, U16_IN, U64_OUT
from tamis.kernels.records.hash128 import hash_bytes
from tamis.kernels.text._blocks import ONE, PAD, ZERO, line_feed_search, next_line_feed
from tamis.kernels.text._counts import by_name, put_counts, room_for
from tamis.kernels.text._seen import SLOT, is_new, new_set, slots_for
from tamis.kernels.text._unicode import (
    BULLET,
    FLAGS,
    PAGE_OF,
    TERMINAL,
    after_last_word_byte,
    back,
    decode,
    first_word_byte,
    flags_of,
)

COUNTS = {
    "sentences": "Lines of text.split('\\n') that are not blank.",
    "sentence_chars": "Characters of those lines.",
    "duplicate_sentences": "Lines that occurred before in the document.",
    "duplicate_sentence_chars": "Characters of those: FineWeb's char_duplicates.",
    "bullet_sentences": "Lines that begin, after whitespace, with one of the original's twelve bullets.",
    "ellipsis_sentences": "Lines that end, before whitespace, in one of the original's ellipsis marks, in any case.",
    "sentences_without_end_mark": "Lines that do not end, before whitespace, in one of . ? ! \" '.",
    "terminal_sentences": (
        "Lines whose very last character is sentence-final punctuation of any script (FineWeb's list)."
    ),
    "short_sentences": "Lines of at most 30 characters (FineWeb).",
    "line_runs": "Pieces of re.split('\\n+', text): the lines of Gopher's repetition rules.",
    "duplicate_line_runs": "Those pieces that occurred before.",
    "duplicate_line_run_chars": "Characters of those.",
}
SHORT_LINE = 30  # FineWeb's short_line_length


@helper
def ends_in_dots(source, a, b):
    """Return True if source[a:b) ends in "..."."""
    return b - a >= 3 and at(source, b - 1) == 46 and at(source, b - 2) == 46 and at(source, b - 3) == 46


@helper
def ends_in_ellipsis(source, a, b):
    """Return True if source[a:b) ends in the character U+2026."""
    return b - a >= 3 and at(source, b - 1) == 0xA6 and at(source, b - 2) == 0x80 and at(source, b - 3) == 0xE2


@helper
def _ends_in_read_more(source, a, b):
    """Return True if source[a:b) ends in "read more", ignoring case."""
    if b - a < 9 or at(source, b - 5) != 32:
        return False
    low = np.uint8(32)
    return (
        at(source, b - 9) | low == 114
        and at(source, b - 8) | low == 101
        and at(source, b - 7) | low == 97
        and at(source, b - 6) | low == 100
        and at(source, b - 4) | low == 109
        and at(source, b - 3) | low == 111
        and at(source, b - 2) | low == 114
        and at(source, b - 1) | low == 101
    )


@helper
def _has_ellipsis_mark(source, a, b):
    """Return True if source[a:b) ends in one of the ellipsis marks of the original.

    The marks are: ... [...] … (...) […] -» "read more.." "read more".
    """
    c = at(source, b - 1)
    if c == 46:
        return ends_in_dots(source, a, b) or (
            b - a > 9 and at(source, b - 2) == 46 and _ends_in_read_more(source, a, b - 2)
        )
    if c == 101 or c == 69:
        return _ends_in_read_more(source, a, b)
    if c == 0xA6:
        return ends_in_ellipsis(source, a, b)
    if c == 0xBB:
        return b - a >= 3 and at(source, b - 2) == 0xC2 and at(source, b - 3) == 45
    if c == 93:
        opened = b - a >= 5 and at(source, b - 5) == 91
        return opened and (ends_in_dots(source, a, b - 1) or ends_in_ellipsis(source, a, b - 1))
    return c == 41 and b - a >= 5 and at(source, b - 5) == 40 and ends_in_dots(source, a, b - 1)


@kernel(types.void(U8_IN, I64_IN, I64_IN, I64_IN, U8_IN, U16_IN, U8_OUT, U64_OUT, I64_OUT))
def _lines(data, starts, ends, n_newlines, pages_in, flags_in, pad_out, table_out, out):
    source, pad, pages, flags = pointer(data), pointer(pad_out), pointer(pages_in), pointer(flags_in)
    table = pointer(table_out)
    size = data.size
    epoch = ZERO
    for row in range(starts.size):
        s = at(starts, row)
        e = at(ends, row)
        n_lines = at(n_newlines, row) + 1
        used, n_rounds = slots_for(n_lines, table_out.size // SLOT)
        n_sentences = n_chars = n_same = n_same_chars = n_bullets = n_ellipses = n_open = n_terminal = n_short = 0
        n_runs = n_same_runs = n_same_run_chars = 0
        for turn in range(n_rounds):
            epoch += ONE
            search = line_feed_search(s)
            begin = s
            n_at_begin = 0
            last = False
            while not last:
                end, n_at_end, last, search = next_line_feed(source, size, e, pad, search)
                length = n_at_end - n_at_begin
                if begin < end:
                    a = first_word_byte(source, begin, end, pages, flags)
                    if turn == 0:
                        n_runs += 1
                        if a < end:
                            b = after_last_word_byte(source, begin, end, pages, flags)
                            n_sentences += 1
                            n_chars += length
                            n_short += length <= SHORT_LINE
                            if at(source, a) >= 128:
                                code, _ = decode(source, a, b)
                                n_bullets += flags_of(pages, flags, code) & BULLET != 0
                            c = at(source, b - 1)
                            n_open += not (c == 46 or c == 63 or c == 33 or c == 34 or c == 39)
                            n_ellipses += _has_ellipsis_mark(source, a, b)
                            code, _ = decode(source, back(source, begin, end), end)
                            n_terminal += flags_of(pages, flags, code) & TERMINAL != 0
                    hi, lo = hash_bytes(source, size, begin, end - begin, ZERO)
                    mine = n_rounds == 1 or np.int64(lo >> np.uint64(33)) % n_rounds == turn
                    if mine and not is_new(table, used, epoch, hi, lo):
                        n_same_runs += 1
                        n_same_run_chars += length
                        if a < end:
                            n_same += 1
                            n_same_chars += length
                begin = end + 1
                n_at_begin = n_at_end + 1
        # re.split("\n+") has an empty piece before a leading line feed and one after a trailing one.
        n_empty = 1
        if s < e:
            n_empty = np.int64(at(source, s) == 10) + np.int64(at(source, e - 1) == 10)
        n_same_runs += n_empty == 2
        counts = (
            n_sentences, n_chars, n_same, n_same_chars, n_bullets, n_ellipses, n_open, n_terminal, n_short,
            n_runs + n_empty, n_same_runs, n_same_run_chars,
        )  # fmt: skip
        put_counts(out, row, counts)


def line_counts(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64], n_newlines: NDArray[np.int64]
) -> dict[str, NDArray[np.int64]]:
    """Return one array per name of COUNTS.

    `n_newlines` are the line feeds of each document.
    """
    out = room_for(COUNTS, starts.size)
    table = new_set(int(n_newlines.max(initial=0)) + 1)
    _lines(data, starts, ends, n_newlines, PAGE_OF, FLAGS, np.zeros(PAD, np.uint8), table, out)
    return by_name(COUNTS, out)
