"""Find where all words of 64 bytes end: a mask with one bit for each byte.

For ASCII by masks of its classes, with no loop over the bytes; for tokenizers of SentencePiece by a table, in any text.
As `_pretokens.word_end` does word by word, for the expressions that know letters. A bit depends on the bytes before it
and on one behind it; at the end of what is looked at, where white space may go on, nothing is said. What comes first in
a window begins a word, so that a text is passed window by window, each from the last word that the one before began.
`word_end` takes over where a window says nothing: other characters, and words of 64 bytes. Memory: none. Time:
O(bytes).
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.language.intrinsics import at, highest_bit, lowest_bit, mask_eq, mask_ge, mask_lt
from tamis.kernels.language.jit import helper
from tamis.kernels.tokens._pretokens import (
    BOTH,
    CONTRACTION,
    DIGITS_APART,
    FAMILY,
    GPT2,
    LETTER,
    LOWER,
    N_DIGITS,
    NEWLINE,
    NUMBER,
    O200K,
    OTHER,
    PIECES,
    SLASH,
    SPACE,
    UPPER,
    contraction,
    is_cut,
)

_NONE, _ONE, _ALL = np.uint64(0), np.uint64(1), np.uint64(0xFFFFFFFFFFFFFFFF)
_TWO, _THREE = np.uint64(2), np.uint64(3)


def is_ascii(flags: NDArray[np.uint8]) -> bool:
    """Return True if characters of ASCII have the classes that windows are made for."""
    expected = np.full(128, OTHER, np.uint8)
    expected[[9, 11, 12, 32]], expected[[10, 13]] = SPACE, SPACE | NEWLINE
    expected[48:58] = NUMBER
    expected[65:91], expected[97:123] = LETTER | UPPER, LETTER | LOWER
    return bool(np.array_equal(flags[:128] & ~np.uint8(BOTH), expected))


@helper
def _first(n):
    """Return a mask of the first n bits, 0 <= n <= 64."""
    return _ALL if n >= 64 else (_ONE << np.uint64(n)) - _ONE


@helper
def _groups_of_three(starts, digits):
    """Return the bits of `starts`, which begin runs of digits, and every third bit behind each in its run."""
    inside = digits & (digits << _ONE) & (digits << _TWO) & (digits << _THREE)
    more = (starts << _THREE) & inside
    while more != _NONE:
        starts |= more
        more = (more << _THREE) & inside
    return starts


@helper
def _after_newlines(blanks, newlines):
    """Return the blanks that follow the last line break of a run of white space."""
    starts = blanks & (newlines << _ONE)
    if ((blanks + starts) & ~blanks & newlines) == _NONE:
        return starts
    found = _NONE
    while starts != _NONE:
        one = starts & (~starts + _ONE)
        starts ^= one
        if (blanks + one) & ~blanks & newlines == _NONE:
            found |= one
    return found


@helper
def _own_contractions(source, p, n, kind, quotes, starts):
    """Return `starts` in which contractions that begin at quotes are words of their own, and how much is known."""
    while quotes != _NONE:
        i = lowest_bit(quotes)
        quotes &= quotes - _ONE
        if i + 3 > n:
            return starts, min(i + 1, n)
        end = contraction(source, p + i, p + n, kind) - p
        if end > i:
            starts &= _first(i + 1) | ~_first(end)
            if end < 64:
                starts |= _ONE << np.uint64(end)
    return starts, n


@helper
def _attached_contractions(source, p, n, kind, quotes, starts):
    """Return `starts` without quotes of contractions, which belong to the word before them, and how much is known."""
    while quotes != _NONE:
        i = lowest_bit(quotes)
        quotes &= quotes - _ONE
        if i + 3 > n:
            return starts, min(i, n)
        end = contraction(source, p + i, p + n, kind) - p
        if end > i:
            starts &= ~(_ONE << np.uint64(i))
            if end >= n or np.int64(at(source, p + end)) == 39:
                return starts, min(end, n)
            starts |= _ONE << np.uint64(end)
    return starts, n


@helper
def _piece_ends(source, p, e, cuts, joints, joint_mask):
    """Return what `window_ends` does, for tokenizers of SentencePiece."""
    found = _NONE
    n = min(e - p, 64)
    for k in range(1, n):
        c = np.int64(at(source, p + k))
        if c & 0xC0 != 0x80 and is_cut(source, p, p + k, e, cuts, joints, joint_mask):
            found |= _ONE << np.uint64(k)
    return found if n == 64 else found | (_ONE << np.uint64(n))


@helper
def window_ends(source, p, e, cuts, joints, joint_mask, numbers):
    """Return a mask of which words end in front of source[p + bit], for the first words from p < e on; 0: unknown.

    source[p:p + 64) must be readable.
    """
    if at(numbers, FAMILY) == PIECES:
        return _piece_ends(source, p, e, cuts, joints, joint_mask)
    whole = min(e - p, 64)
    high = mask_ge(source, p, 128)
    n = whole if high == _NONE else min(whole, lowest_bit(high))
    if n < 2:
        return _NONE
    inside = _first(n)
    family = at(numbers, FAMILY)
    upper = mask_ge(source, p, 65) & mask_lt(source, p, 91) & inside
    lower = mask_ge(source, p, 97) & mask_lt(source, p, 123) & inside
    letters = upper | lower
    digits = mask_ge(source, p, 48) & mask_lt(source, p, 58) & inside
    spaces = mask_eq(source, p, 32) & inside
    white = (mask_ge(source, p, 9) & mask_lt(source, p, 14) & inside) | spaces
    others = inside & ~(letters | digits | white)
    quotes = mask_eq(source, p, 39) & inside
    first_others = others & ~(others << _ONE)
    first_digits = digits & ~(digits << _ONE)
    kind = at(numbers, CONTRACTION)
    apart = at(numbers, DIGITS_APART) != 0
    if family == GPT2:
        joined = spaces << _ONE
        last_white = white & ~(white >> _ONE)
        starts = (letters & ~(letters << _ONE) & ~joined) | (first_others & ~joined) | (white & ~(white << _ONE))
        if apart:
            starts |= digits | (last_white & ~(digits >> _ONE))
        else:
            starts |= (first_digits & ~joined) | last_white
        starts, n = _own_contractions(source, p, n, kind, quotes & first_others & ~joined, starts)
    else:
        newlines = (mask_eq(source, p, 10) | mask_eq(source, p, 13)) & inside
        behind = newlines & (others << _ONE)
        taken = newlines & ~(newlines + behind)  # by the punctuation before them
        if at(numbers, SLASH) != 0:
            slashes = mask_eq(source, p, 47) & (taken << _ONE)
            if slashes != _NONE:
                n = min(n, lowest_bit(slashes))
        free = white & ~taken
        blanks = free & ~newlines
        single = first_others & ~(others >> _ONE) & ~(spaces << _ONE)
        starts = (
            (free & ~(free << _ONE))
            | (blanks & ~(white >> _ONE))
            | _after_newlines(blanks, newlines)
            | (letters & ~(letters << _ONE) & ~((blanks | single) << _ONE))
            | (first_others & ~(spaces << _ONE))
        )
        starts |= digits if at(numbers, N_DIGITS) == 1 else _groups_of_three(first_digits, digits)
        if family == O200K:
            starts |= upper & (lower << _ONE)
            if kind != 0:
                starts, n = _attached_contractions(source, p, n, kind, quotes & (letters << _ONE), starts)
        else:
            starts, n = _own_contractions(source, p, n, kind, quotes & first_others & ~(spaces << _ONE), starts)
    inside = _first(n)
    if n == 0 or (white >> np.uint64(n - 1)) & _ONE != _NONE:
        rest = inside & ~white
        n = np.int64(0) if rest == _NONE else highest_bit(rest) + 1
        inside = _first(min(n + 1, 64))
    elif n == e - p and n < 64:
        starts |= _ONE << np.uint64(n)
        inside = _ALL
    return starts & inside & ~_ONE
