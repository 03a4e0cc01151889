r"""Paragraphs of each document: repeated ones, and those that contain boilerplate phrases.

Two definitions: text.split("\n\n") (the original's rules) and re.split("\n{2,}", text.strip()) (Gopher's repetition
rules in datatrove). Repeated paragraphs are found by a set of 128-bit hashes, in several rounds where one document
has more paragraphs than half a million. A document is first searched for phrases as a whole: most have none.
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.language import types
from tamis.kernels.language.intrinsics import at, pointer
from tamis.kernels.language.jit import kernel
from tamis.kernels.language.types import I64_IN, I64_OUT, U8_IN, U8_OUT, U16_IN, U64_OUT
from tamis.kernels.records.hash128 import hash_bytes
from tamis.kernels.text._blocks import ONE, PAD, ZERO, line_feed_search, next_line_feed
from tamis.kernels.text._counts import by_name, put_counts, room_for
from tamis.kernels.text._phrases import JAVASCRIPT, LOREM, POLICY, phrase_flags
from tamis.kernels.text._seen import SLOT, is_new, new_set, slots_for
from tamis.kernels.text._unicode import FLAGS, PAGE_OF, after_last_word_byte, first_word_byte

COUNTS = {
    "paragraphs": "Pieces of text.split('\\n\\n').",
    "paragraph_chars": "Characters of those pieces.",
    "duplicate_paragraphs": "Pieces that occurred before.",
    "duplicate_paragraph_chars": "Characters of those.",
}
GOPHER_COUNTS = {
    "gopher_paragraphs": "Pieces of re.split('\\n{2,}', text.strip()).",
    "gopher_paragraph_chars": "Characters of those pieces.",
    "gopher_duplicate_paragraphs": "Those pieces that occurred before.",
    "gopher_duplicate_paragraph_chars": "Characters of those.",
}
PHRASE_COUNTS = {
    "boilerplate_paragraphs": (
        "Pieces that contain a policy phrase ('privacy policy', 'use of cookies', ...) in any case."
    ),
    "lorem_ipsum": "1 where the text contains 'lorem ipsum' in any case.",
    "javascript": "1 where the text contains 'javascript' in any case.",
}


@kernel(types.void(U8_IN, I64_IN, I64_IN, I64_IN, types.boolean, U8_IN, U16_IN, U8_OUT, U64_OUT, I64_OUT))
def _paragraphs(data, starts, ends, n_newlines, stripped, pages_in, flags_in, pad_out, table_out, out):
    """Count paragraphs; `stripped`: of the text without surrounding whitespace, cut at two or more line feeds."""
    source, pad, table = pointer(data), pointer(pad_out), pointer(table_out)
    pages, flags = pointer(pages_in), pointer(flags_in)
    size = data.size
    epoch = ZERO
    for row in range(starts.size):
        s = at(starts, row)
        e = at(ends, row)
        if stripped:
            s = first_word_byte(source, s, e, pages, flags)
            e = after_last_word_byte(source, s, e, pages, flags)
        used, n_rounds = slots_for(at(n_newlines, row) // 2 + 1, table_out.size // SLOT)
        n_pieces = n_chars = n_same = n_same_chars = 0
        for turn in range(n_rounds):
            epoch += ONE
            search = line_feed_search(s)
            begin = s
            n_at_begin = 0
            run = np.int64(-1)  # first line feed of the run that may end the paragraph
            n_at_run = 0
            n_in_run = 0
            last = False
            while not last:
                here, n_here, last, search = next_line_feed(source, size, e, pad, search)
                if not last and n_in_run > 0 and here == run + n_in_run:
                    n_in_run += 1
                    if stripped or n_in_run != 2:
                        continue
                elif not last and n_in_run < 2:
                    run = here
                    n_at_run = n_here
                    n_in_run = 1
                    continue
                # A paragraph ends: at the run before this place, at the end of the text, or at both.
                n_ends = 1
                if last:
                    n_ends = 2 if n_in_run >= 2 else 1
                for which in range(n_ends):
                    end, n_at_end = run, n_at_run
                    if last and which == n_ends - 1:
                        end, n_at_end = e, n_here
                    length = n_at_end - n_at_begin
                    hi, lo = hash_bytes(source, size, begin, end - begin, ZERO)
                    if turn == 0:
                        n_pieces += 1
                        n_chars += length
                    mine = n_rounds == 1 or np.int64(lo >> np.uint64(33)) % n_rounds == turn
                    if mine and not is_new(table, used, epoch, hi, lo):
                        n_same += 1
                        n_same_chars += length
                    begin = run + n_in_run
                    n_at_begin = n_at_run + n_in_run
                n_in_run = 0
                if stripped and not last:
                    run = here
                    n_at_run = n_here
                    n_in_run = 1
        put_counts(out, row, (n_pieces, n_chars, n_same, n_same_chars))


@kernel(types.void(U8_IN, I64_IN, I64_IN, U8_OUT, I64_OUT))
def _phrases(data, starts, ends, pad_out, out):
    source, pad = pointer(data), pointer(pad_out)
    size = data.size
    for row in range(starts.size):
        s = at(starts, row)
        e = at(ends, row)
        meanings = phrase_flags(source, size, s, e, pad)
        n_policy = 0
        if meanings & POLICY:
            begin = p = s
            while begin <= e:
                # Byte by byte: few documents come here.
                while p < e and not (at(source, p) == 10 and p + 1 < e and at(source, p + 1) == 10):
                    p += 1
                n_policy += phrase_flags(source, size, begin, p, pad) & POLICY != 0
                begin = p = p + 2
        put_counts(out, row, (n_policy, np.int64(meanings & LOREM != 0), np.int64(meanings & JAVASCRIPT != 0)))


def paragraph_counts(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    n_newlines: NDArray[np.int64],
    stripped: bool = False,
) -> dict[str, NDArray[np.int64]]:
    """Return one array per name of COUNTS, or of GOPHER_COUNTS with `stripped`."""
    out = room_for(COUNTS, starts.size)
    table = new_set(int(n_newlines.max(initial=0)) // 2 + 1)
    _paragraphs(data, starts, ends, n_newlines, stripped, PAGE_OF, FLAGS, np.zeros(PAD, np.uint8), table, out)
    return by_name(GOPHER_COUNTS if stripped else COUNTS, out)


def phrase_counts(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> dict[str, NDArray[np.int64]]:
    """Return one array per name of PHRASE_COUNTS; the last two are 0 or 1."""
    out = room_for(PHRASE_COUNTS, starts.size)
    _phrases(data, starts, ends, np.zeros(PAD, np.uint8), out)
    return by_name(PHRASE_COUNTS, out)
