"""Find the end of the next word of a text, as the published regular expressions of byte-level tokenizers define it.

Four families of expressions (stages/text/tokens/patterns.py has their texts): GPT2, CL100K, O200K, and GPT2 with each
digit apart. All of them look ahead only, so that a text can be continued at any word. Characters have flags, in a table
of pages (`CharClasses`); `plain_end` decides most words of ASCII from masks of 64 bytes. Tokenizers of SentencePiece
(PIECES) merge across a whole text: it is cut where no merge can reach across, by tables over the bytes on both sides.
Memory: none. Time: O(bytes of the word), and of the white space after it.
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from tamis.kernels.language.intrinsics import at, lowest_bit, mask_ge, mask_lt
from tamis.kernels.language.jit import helper
from tamis.kernels.text._unicode import decode, flags_of

LETTER, NUMBER, SPACE, OTHER = 1, 2, 4, 8  # \p{L}, \p{N}, \s, none of these
UPPER, LOWER, BOTH = 16, 32, 64  # \p{Lu}\p{Lt}, \p{Ll}, \p{Lm}\p{Lo}\p{M}
NEWLINE = 128  # carriage return and line feed

GPT2, CL100K, O200K, PIECES = 0, 1, 2, 3
# Numbers that describe an expression: its family; how many digits are a word at most (0: any number); what may follow a
# contraction's quote (0: nothing, 1: as written, 2: in either case, 3: also a long s); whether a slash may follow
# punctuation; whether white space at the end of a text is a word; whether a digit ends what is looked at.
FAMILY, N_DIGITS, CONTRACTION, SLASH, END_FIRST, DIGITS_APART = 0, 1, 2, 3, 4, 5
N_NUMBERS = 6
JOINED, CUT, JOINED_IN_PART = 0, 1, 2  # two bytes: some merge has just these, none has them, some has more
_P1 = np.uint64(0x9E3779B97F4A7C15)
_NO_BITS, _ONE, _THREE, _SEVEN = np.uint64(0), np.uint64(1), np.uint64(3), np.uint64(7)
_EIGHT, _SIXTEEN, _TWENTY_FOUR = np.uint64(8), np.uint64(16), np.uint64(24)


@helper
def class_at(source, p, e, pages, flags):
    """Return (flags, position after) of the character at p < e."""
    c = np.int64(at(source, p))
    if c < 128:
        return np.int64(at(flags, c)), p + 1
    code, after = decode(source, p, e)
    return flags_of(pages, flags, code), after


@helper
def _run(source, p, e, pages, flags, wanted):
    """Return the position after the characters from p on that have any of the wanted flags."""
    while p < e:
        found, after = class_at(source, p, e, pages, flags)
        if found & wanted == 0:
            return p
        p = after
    return p


@helper
def _digits(source, p, e, pages, flags, most):
    """Return the position after at most that many digits (0: any number) from p on."""
    n = 0
    while p < e and (most == 0 or n < most):
        found, after = class_at(source, p, e, pages, flags)
        if found & NUMBER == 0:
            return p
        p = after
        n += 1
    return p


@helper
def contraction(source, p, e, kind):
    """Return the position after 's, 't, 're, 've, 'm, 'll or 'd, whose quote is at p; p if there is none."""
    if p + 1 >= e:
        return p
    fold = 32 if kind >= 2 else 0
    c = np.int64(at(source, p + 1)) | fold
    if c == 115 or c == 116 or c == 109 or c == 100:
        return p + 2
    if p + 2 < e:
        d = np.int64(at(source, p + 2)) | fold
        if (d == 101 and (c == 114 or c == 118)) or (c == 108 and d == 108):
            return p + 3
        if kind == 3 and np.int64(at(source, p + 1)) == 0xC5 and np.int64(at(source, p + 2)) == 0xBF:
            return p + 3
    return p


@helper
def _white(source, p, e, pages, flags, numbers):
    """Return the end of a word that begins with white space at p."""
    q = last = p
    newline = np.int64(-1)
    found = np.int64(0)
    while q < e:
        found, after = class_at(source, q, e, pages, flags)
        if found & SPACE == 0:
            break
        if found & NEWLINE:
            newline = after
        last = q
        q = after
    if q >= e and at(numbers, END_FIRST) != 0:
        return q
    if at(numbers, FAMILY) != GPT2 and newline >= 0:
        return newline
    if q >= e or last == p or (at(numbers, DIGITS_APART) != 0 and found & NUMBER != 0):
        return q
    return last


@helper
def _punctuation(source, p, e, pages, flags, numbers):
    """Return the end of a word of punctuation, whose first character ends at p."""
    p = _run(source, p, e, pages, flags, OTHER)
    if at(numbers, FAMILY) == GPT2:
        return p
    slash = at(numbers, SLASH) != 0
    while p < e:
        c = np.int64(at(source, p))
        if c != 10 and c != 13 and not (slash and c == 47):
            return p
        p += 1
    return p


@helper
def _cased(source, p, e, pages, flags):
    """Return the ends of any capitals followed by at least one small letter from p on, and of at least one capital.

    Letters without case, and marks, count as both. -1 where there is no such word.
    """
    q = p
    neither = np.int64(-1)  # the end of the last one without case, if any
    found = np.int64(0)
    while q < e:
        found, after = class_at(source, q, e, pages, flags)
        if found & (UPPER | BOTH) == 0:
            break
        q = after
        if found & BOTH:
            neither = q
    if q < e and found & LOWER:
        end = _run(source, q, e, pages, flags, LOWER | BOTH)
        return end, (end if q > p else np.int64(-1))
    return neither, (q if q > p else np.int64(-1))


@helper
def _gpt2_end(source, p, e, pages, flags, numbers):
    found, after = class_at(source, p, e, pages, flags)
    c = np.int64(at(source, p))
    if c == 39:
        q = contraction(source, p, e, 1)
        if q > p:
            return q
    apart = at(numbers, DIGITS_APART) != 0
    if c == 32 and after < e:
        next_found, next_after = class_at(source, after, e, pages, flags)
        if next_found & SPACE == 0 and not (apart and next_found & NUMBER != 0):
            found, after = next_found, next_after
    if found & LETTER:
        return _run(source, after, e, pages, flags, LETTER)
    if found & NUMBER:
        return after if apart else _run(source, after, e, pages, flags, NUMBER)
    if found & OTHER:
        return _run(source, after, e, pages, flags, OTHER)
    return _white(source, p, e, pages, flags, numbers)


@helper
def _rest_end(source, p, e, pages, flags, numbers, found, after):
    """Return the end of a word at p that is none of letters, for CL100K and O200K."""
    if found & NUMBER:
        return _digits(source, p, e, pages, flags, at(numbers, N_DIGITS))
    if found & OTHER:
        return _punctuation(source, after, e, pages, flags, numbers)
    if np.int64(at(source, p)) == 32 and after < e:
        next_found, next_after = class_at(source, after, e, pages, flags)
        if next_found & OTHER:
            return _punctuation(source, next_after, e, pages, flags, numbers)
    return _white(source, p, e, pages, flags, numbers)


@helper
def _cl100k_end(source, p, e, pages, flags, numbers):
    found, after = class_at(source, p, e, pages, flags)
    if np.int64(at(source, p)) == 39:
        q = contraction(source, p, e, at(numbers, CONTRACTION))
        if q > p:
            return q
    if found & LETTER:
        return _run(source, after, e, pages, flags, LETTER)
    if found & (NEWLINE | NUMBER) == 0 and after < e:
        next_found, next_after = class_at(source, after, e, pages, flags)
        if next_found & LETTER:
            return _run(source, next_after, e, pages, flags, LETTER)
    return _rest_end(source, p, e, pages, flags, numbers, found, after)


@helper
def _o200k_end(source, p, e, pages, flags, numbers):
    found, after = class_at(source, p, e, pages, flags)
    may_lead = found & (NEWLINE | NUMBER | LETTER) == 0
    end = capitals = np.int64(-1)
    if may_lead and after < e:
        end, capitals = _cased(source, after, e, pages, flags)
    if end < 0:
        # In the order of the alternatives: with a first character, without, and the same of capitals alone.
        plain_end_, plain_capitals = _cased(source, p, e, pages, flags)
        if plain_end_ >= 0:
            end = plain_end_
        elif capitals >= 0:
            end = capitals
        else:
            end = plain_capitals
    if end < 0:
        return _rest_end(source, p, e, pages, flags, numbers, found, after)
    kind = at(numbers, CONTRACTION)
    if kind != 0 and end < e and np.int64(at(source, end)) == 39:
        return contraction(source, end, e, kind)
    return end


@helper
def is_cut(source, start, p, e, cuts, joints, joint_mask):
    """Return whether no merge reaches across p, where a character begins that is behind the first byte of a word.

    source[start:e) is what merges see: the word from its beginning, and what follows it. The two bytes on each side of
    all merges are in `joints`, with zeros for what a merge of one byte has not.
    """
    a, b = np.uint64(at(source, p - 1)), np.uint64(at(source, p))
    kind = at(cuts, np.int64((a << _EIGHT) | b))
    if kind != JOINED_IN_PART:
        return kind == CUT
    middle = (a << _SIXTEEN) | (b << _EIGHT)
    before = np.uint64(at(source, p - 2)) << _TWENTY_FOUR if p - 2 >= start else _NO_BITS
    behind = np.uint64(at(source, p + 1)) if p + 1 < e else _NO_BITS
    found = _has_joint(middle | behind, joints, joint_mask) | _has_joint(before | middle, joints, joint_mask)
    return (found | _has_joint(before | middle | behind, joints, joint_mask)) == _NO_BITS


@helper
def joint_place(key, mask):
    """Return which bit of the joints is set for a key of four bytes."""
    return ((key * _P1) >> _TWENTY_FOUR) & mask


@helper
def _has_joint(key, joints, mask):
    place = joint_place(key, mask)
    return (np.uint64(at(joints, np.int64(place >> _THREE))) >> (place & _SEVEN)) & _ONE


@helper
def _piece_end(source, p, e, cuts, joints, joint_mask):
    """Return the first end of a character behind p, and at most e, that no merge reaches across."""
    start = p
    p += 1
    while p < e:
        if np.int64(at(source, p)) & 0xC0 != 0x80 and is_cut(source, start, p, e, cuts, joints, joint_mask):
            return p
        p += 1
    return e


@helper
def word_end(source, p, e, pages, flags, cuts, joints, joint_mask, numbers):
    """Return where the word that begins at p < e ends."""
    family = at(numbers, FAMILY)
    if family == PIECES:
        return _piece_end(source, p, e, cuts, joints, joint_mask)
    if family == CL100K:
        return _cl100k_end(source, p, e, pages, flags, numbers)
    if family == O200K:
        return _o200k_end(source, p, e, pages, flags, numbers)
    return _gpt2_end(source, p, e, pages, flags, numbers)


@helper
def plain_end(source, p, e, flags, numbers):
    """Return where the word that begins at p < e ends if letters of ASCII alone tell, else -1. Not for PIECES.

    source[p:p + 64) must be readable.
    """
    family = at(numbers, FAMILY)
    c = np.int64(at(source, p))
    if c >= 128:
        return np.int64(-1)
    found = np.int64(at(flags, c))
    upper = mask_ge(source, p, 65) & mask_lt(source, p, 91)
    lower = mask_ge(source, p, 97) & mask_lt(source, p, 123)
    offset = np.int64(0)
    if found & LETTER == 0:
        if family == GPT2:
            if c != 32:
                return np.int64(-1)
        elif found & (NEWLINE | NUMBER) != 0 or (family == CL100K and c == 39):
            return np.int64(-1)
        offset = np.int64(1)
    if family == O200K:
        rest = ~(upper >> np.uint64(offset))
        if rest == _NO_BITS:
            return np.int64(-1)
        n = offset + lowest_bit(rest)
        if n >= 64:
            return np.int64(-1)
        rest = ~(lower >> np.uint64(n))
    else:
        n = offset
        rest = ~((upper | lower) >> np.uint64(n))
    if rest == _NO_BITS:
        return np.int64(-1)
    n += lowest_bit(rest)
    if n <= offset or n >= 64:
        return np.int64(-1)
    if p + n >= e:
        return e
    after = np.int64(at(source, p + n))
    if after >= 128 or (after == 39 and family == O200K):
        return np.int64(-1)
    return p + n
