"""Lines as str.splitlines() gives them, for the rules of Gopher and C4; and a table of lines for cleaning line by line.

C4's rules per line, in their order: no word of more than 1000 characters; citations such as [1] or [edit] do not
count at the line's end, which must be one of . ? ! " ' but not "..."; at least 3 words; "lorem ipsum" drops the
document; no "javascript"; a curly bracket drops the document; no policy phrase. Differences from datatrove: phrases
are looked for in the line with its citations; sentences are counted by their end marks, not by a trained tokeniser.
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.buffers import StringBuffers
from tamis.kernels.language import types
from tamis.kernels.language.intrinsics import at, lowest_bit, mask_eq, mask_ge, mask_lt, pointer, put
from tamis.kernels.language.jit import helper, kernel
from tamis.kernels.language.types import I64_IN, I64_OUT, U8_IN, U8_OUT, U16_IN
from tamis.kernels.text._blocks import ONE, PAD, ZERO, block_at, valid_mask
from tamis.kernels.text._counts import by_name, put_counts, room_for
from tamis.kernels.text._phrases import C4_POLICY, JAVASCRIPT, LOREM, phrase_flags
from tamis.kernels.text._unicode import (
    DECIMAL,
    FLAGS,
    PAGE_OF,
    SPACE,
    after_last_word_byte,
    back,
    decode,
    first_word_byte,
    flags_of,
)
from tamis.kernels.text.line_stats import ends_in_dots, ends_in_ellipsis

COUNTS = {
    "split_lines": "Lines of str.splitlines().",
    "gopher_bullet_lines": "Lines of splitlines that begin, after whitespace, with • or -.",
    "gopher_ellipsis_lines": "Lines of splitlines that end, before whitespace, in ... or U+2026.",
    "c4_lines": (
        "Lines of splitlines that C4's rules keep with their usual limits (3 words, words of up to 1000 characters)."
    ),
    "c4_sentences": (
        "Sentences in those lines: . ? ! and closing quotes or brackets before whitespace or the line's end."
    ),
    "c4_lorem_ipsum": "1 where C4's rules meet 'lorem ipsum' in a line not removed for another reason before.",
    "c4_curly_bracket": "1 where C4's rules meet { in a line not removed for another reason before.",
}
MIN_WORDS, MAX_WORD = 3, 1000
# Flags of a line in a LineTable; C4_POLICY, LOREM and JAVASCRIPT of _phrases are among them.
LINE_POLICY, LINE_LOREM, LINE_JAVASCRIPT, LINE_TERMINAL, LINE_CURLY = C4_POLICY, LOREM, JAVASCRIPT, 16, 32
_EDIT = np.frombuffer(b"[edit]", np.uint8)
_NEEDED = np.frombuffer(b"[citation needed]", np.uint8)


@helper
def next_line(source, size, p, e, pad):
    """Return (end, begin of the next) of the line at p < e."""
    while p < e:
        block, i = block_at(source, size, p, e, pad)
        stops = (mask_ge(block, i, 10) & mask_lt(block, i, 14)) | (mask_ge(block, i, 28) & mask_lt(block, i, 31))
        stops = (stops | mask_eq(block, i, 0xC2) | mask_eq(block, i, 0xE2)) & valid_mask(p, e)
        while stops != ZERO:
            q = p + lowest_bit(stops)
            stops &= stops - ONE
            c = at(source, q)
            if c < 128:
                return q, q + 2 if c == 13 and q + 1 < e and at(source, q + 1) == 10 else q + 1
            if c == 0xC2 and q + 1 < e and at(source, q + 1) == 0x85:
                return q, q + 2
            if c == 0xE2 and q + 2 < e and at(source, q + 1) == 0x80 and at(source, q + 2) | np.uint8(1) == 0xA9:
                return q, q + 3
        p += 64
    return e, e


@helper
def _without(source, a, b, text, n_text):
    """Return b less the length of `text` if buf[a:b) ends in it, else b."""
    if b - a < n_text:
        return b
    for k in range(n_text):
        if at(source, b - n_text + k) != at(text, k):
            return b
    return b - n_text


@helper
def _before_citation(source, a, b, pages, flags):
    """Return the position at which the citations at the end of source[a:b) begin.

    Citations are: [12], [], [edit], [citation needed].
    """
    while b > a and at(source, b - 1) == 93:
        q = b - 1
        while q > a:
            begin = back(source, a, q)
            code, _ = decode(source, begin, q)
            if flags_of(pages, flags, code) & DECIMAL == 0:
                break
            q = begin
        if q > a and at(source, q - 1) == 91:
            b = q - 1
            continue
        q = _without(source, a, b, pointer(_EDIT), 6)
        if q == b:
            q = _without(source, a, b, pointer(_NEEDED), 17)
        if q == b:
            break
        b = q
    return b


@helper
def _is_terminal(source, a, b, pages, flags):
    """Return True if the line, ignoring citations, ends in an end mark that is not an ellipsis."""
    b = _before_citation(source, a, b, pages, flags)
    if b <= a:
        return False
    c = at(source, b - 1)
    if c != 46:
        return c == 63 or c == 33 or c == 34 or c == 39
    for _ in range(2):
        b = _before_citation(source, a, b - 1, pages, flags)
        if b <= a or at(source, b - 1) != 46:
            return True
    return False


@helper
def _count_words(source, a, b, pages, flags):
    """Return (words, characters of the longest)."""
    n_words = longest = length = 0
    while a < b:
        c = np.int64(at(source, a))
        if 32 < c < 128:
            space = False
            a += 1
        else:
            code, a = decode(source, a, b)
            space = flags_of(pages, flags, code) & SPACE != 0
        if space:
            length = 0
        else:
            n_words += length == 0
            length += 1
            longest = max(longest, length)
    return n_words, longest


@helper
def _count_sentences(source, a, b, pages, flags):
    """Count end marks, with closing quotes or brackets, before whitespace or the end, and what follows the last one."""
    n = 0
    marked = left = False
    while a < b:
        c, a = decode(source, a, b)
        if c == 46 or c == 63 or c == 33:
            marked = left = True
        elif flags_of(pages, flags, c) & SPACE:
            if marked:
                n += 1
                left = False
            marked = False
        else:
            marked = marked and (c == 34 or c == 39 or c == 41 or c == 93)
            left = True
    return n + np.int64(left)


@helper
def _has_curly(source, a, b):
    while a < b and at(source, a) != 123:
        a += 1
    return a < b


@helper
def _begins_with_bullet(source, a):
    """Return True for a hyphen or the character U+2022."""
    bullet = at(source, a) == 0xE2 and at(source, a + 1) == 0x80 and at(source, a + 2) == 0xA2
    return bullet or at(source, a) == 45


@kernel(types.void(U8_IN, I64_IN, I64_IN, U8_IN, U16_IN, U8_OUT, I64_OUT))
def _split_lines(data, starts, ends, pages_in, flags_in, pad_out, out):
    source, pad, pages, flags = pointer(data), pointer(pad_out), pointer(pages_in), pointer(flags_in)
    size = data.size
    for row in range(starts.size):
        p = at(starts, row)
        e = at(ends, row)
        n_lines = n_bullets = n_ellipses = n_kept = n_sentences = n_lorem = n_curly = 0
        while p < e:
            end, following = next_line(source, size, p, e, pad)
            n_lines += 1
            a = first_word_byte(source, p, end, pages, flags)
            b = after_last_word_byte(source, a, end, pages, flags)
            p = following
            if a >= b:
                continue
            n_bullets += _begins_with_bullet(source, a)
            n_ellipses += ends_in_dots(source, a, b) or ends_in_ellipsis(source, a, b)
            if n_lorem > 0 or n_curly > 0 or not _is_terminal(source, a, b, pages, flags):
                continue
            n_words, longest = _count_words(source, a, b, pages, flags)
            if longest > MAX_WORD or n_words < MIN_WORDS:
                continue
            meanings = phrase_flags(source, size, a, b, pad)
            if meanings & LOREM:
                n_lorem = 1
            elif meanings & JAVASCRIPT:
                continue
            elif _has_curly(source, a, b):
                n_curly = 1
            elif meanings & C4_POLICY == 0:
                n_kept += 1
                n_sentences += _count_sentences(source, a, b, pages, flags)
        put_counts(out, row, (n_lines, n_bullets, n_ellipses, n_kept, n_sentences, n_lorem, n_curly))


@kernel(types.void(U8_IN, I64_IN, I64_IN, U8_OUT, I64_OUT))
def _count_lines(data, starts, ends, pad_out, out):
    source, pad = pointer(data), pointer(pad_out)
    for row in range(starts.size):
        p = at(starts, row)
        e = at(ends, row)
        n_lines = 0
        while p < e:
            _, p = next_line(source, data.size, p, e, pad)
            n_lines += 1
        put(out, row, n_lines)


@kernel(
    types.void(
        *(U8_IN, I64_IN, I64_IN, I64_IN, U8_IN, U16_IN, U8_OUT, types.boolean),
        *(I64_OUT, I64_OUT, I64_OUT, I64_OUT, I64_OUT),
    )
)
def _tabulate(
    data,
    starts,
    ends,
    doc_ptr,
    pages_in,
    flags_in,
    pad_out,
    only_terminal,
    line_starts,
    line_ends,
    n_words_out,
    longest_out,
    flags_out,
):
    source, pad, pages, flags = pointer(data), pointer(pad_out), pointer(pages_in), pointer(flags_in)
    size = data.size
    for row in range(starts.size):
        p = at(starts, row)
        e = at(ends, row)
        to = at(doc_ptr, row)
        while p < e:
            end, following = next_line(source, size, p, e, pad)
            a = first_word_byte(source, p, end, pages, flags)
            b = after_last_word_byte(source, a, end, pages, flags)
            terminal = LINE_TERMINAL if _is_terminal(source, a, b, pages, flags) else 0
            n_words = longest = 0
            if terminal != 0 or not only_terminal:
                n_words, longest = _count_words(source, a, b, pages, flags)
                terminal |= phrase_flags(source, size, a, b, pad) & (C4_POLICY | LOREM | JAVASCRIPT)
                terminal |= LINE_CURLY if _has_curly(source, a, b) else 0
            put(line_starts, to, a)
            put(line_ends, to, b)
            put(n_words_out, to, n_words)
            put(longest_out, to, longest)
            put(flags_out, to, terminal)
            to += 1
            p = following


class LineTable(NamedTuple):
    """Line k of document i, doc_ptr[i] <= k < doc_ptr[i + 1], is data[starts[k]:ends[k]), without surrounding space."""

    doc_ptr: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    n_words: NDArray[np.int64]
    longest_word: NDArray[np.int64]
    flags: NDArray[np.int64]  # LINE_TERMINAL, LINE_CURLY, LINE_POLICY, LINE_LOREM, LINE_JAVASCRIPT


def split_line_counts(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> dict[str, NDArray[np.int64]]:
    """Return one array per name of COUNTS."""
    out = room_for(COUNTS, starts.size)
    _split_lines(data, starts, ends, PAGE_OF, FLAGS, np.zeros(PAD, np.uint8), out)
    return by_name(COUNTS, out)


def line_table(parts: StringBuffers, only_terminal: bool = False) -> LineTable:
    """Return every line of every document with the properties that C4's rules need: 40 bytes per line.

    Null has no lines. `only_terminal`: search words and phrases only in lines that end in an end mark (all that most
    rules keep), which saves time.
    """
    starts, ends = parts.spans()
    doc_ptr = np.zeros(starts.size + 1, np.int64)
    pad = np.zeros(PAD, np.uint8)
    n_lines = np.empty(starts.size, np.int64)
    _count_lines(parts.data, starts, ends, pad, n_lines)
    np.cumsum(n_lines, out=doc_ptr[1:])
    columns = [np.empty(int(doc_ptr[-1]), np.int64) for _ in range(5)]
    _tabulate(parts.data, starts, ends, doc_ptr, PAGE_OF, FLAGS, pad, only_terminal, *columns)
    return LineTable(doc_ptr, *columns)
