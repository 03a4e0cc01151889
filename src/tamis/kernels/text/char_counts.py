"""Characters and words of each document, counted by class in one pass of bit masks.

Per 64 bytes: some 40 vector comparisons, no branch for ASCII; every non-ASCII character is decoded and looked up. Words
and words without letters are counted without visiting words: a word is a run of bits, and adding the runs that begin
without a letter carries each to its first letter or to its end. O(bytes), no memory beyond the output.
"""
# Compiled functions carry their types in the signatures of the kernels; numbers there change from int to int64.
# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.language import types
from tamis.kernels.language.intrinsics import at, count_bits, lowest_bit, mask_eq, mask_ge, mask_lt, pointer
from tamis.kernels.language.jit import kernel
from tamis.kernels.language.types import I64_IN, I64_OUT, U8_IN, U8_OUT, U16_IN
from tamis.kernels.text._blocks import ONE, PAD, ZERO, ascii_spaces, block_at, valid_mask
from tamis.kernels.text._counts import by_name, put_counts, room_for
from tamis.kernels.text._unicode import ALPHA, ANGLE, ELLIPSIS, FLAGS, PAGE_OF, SPACE, decode, flags_of

COUNTS = {
    "chars": "Length of the text in characters (code points).",
    "whitespace_chars": "Characters for which str.isspace is true.",
    "basic_whitespace_chars": (
        "Tabs, line feeds, carriage returns, backspaces and spaces: what WhiteSpaceFilter counts."
    ),
    "digits": "Digits 0 to 9: what NumbersFilter counts.",
    "alpha_chars": "Characters for which str.isalpha is true.",
    "alnum_punct_chars": (
        "ASCII letters, digits, line feeds and the marks ? ! , . as NonAlphaNumericFilter counts them."
    ),
    "bracket_chars": "Round, square, curly and angle (U+27E8, U+27E9) brackets.",
    "hash_chars": "Occurrences of #.",
    "ellipses": "Occurrences of ... (not overlapping) and of the character U+2026.",
    "newlines": "Line feeds.",
    "curly_brackets": "Occurrences of {.",
    "words": "Words, as str.split() gives them.",
    "words_with_alpha": "Words with at least one character for which str.isalpha is true.",
}


@kernel(types.void(U8_IN, I64_IN, I64_IN, U8_IN, U16_IN, U8_OUT, I64_OUT))
def _count(data, starts, ends, pages_in, flags_in, pad_out, out):
    source, pad, pages, flags = pointer(data), pointer(pad_out), pointer(pages_in), pointer(flags_in)
    size = data.size
    for row in range(starts.size):
        p = at(starts, row)
        e = at(ends, row)
        n_chars = n_spaces = n_basic = n_digits = n_alpha = n_alnum = 0
        n_brackets = n_hashes = n_ellipses = n_newlines = n_curly = n_words = n_bare = 0
        overflow = ZERO  # whitespace bytes of the next block that belong to a character of this one
        inside = ZERO  # 1 when the block before ended inside a word
        bare = ZERO  # 1 when that word had no letter yet
        last_dot = np.int64(-1)
        n_dots = 0
        while p < e:
            block, i = block_at(source, size, p, e, pad)
            valid = valid_mask(p, e)
            spaces = ascii_spaces(block, i) | overflow
            overflow = ZERO
            newlines = mask_eq(block, i, 10) & valid
            digits = mask_ge(block, i, 48) & mask_lt(block, i, 58)
            alpha = (mask_ge(block, i, 97) & mask_lt(block, i, 123)) | (mask_ge(block, i, 65) & mask_lt(block, i, 91))
            dots = mask_eq(block, i, 46) & valid
            alnum = alpha | digits | newlines | dots | mask_eq(block, i, 63) | mask_eq(block, i, 33)
            alnum |= mask_eq(block, i, 44)
            basic = mask_eq(block, i, 32) | newlines | mask_eq(block, i, 9) | mask_eq(block, i, 13)
            basic |= mask_eq(block, i, 8)
            curly = mask_eq(block, i, 123)
            brackets = (mask_ge(block, i, 40) & mask_lt(block, i, 42)) | mask_eq(block, i, 91) | mask_eq(block, i, 93)
            brackets |= curly | mask_eq(block, i, 125)
            high = mask_ge(block, i, 128) & valid
            follow = ZERO
            if high != ZERO:
                follow = high & mask_lt(block, i, 192)
                leads = high ^ follow
                while leads != ZERO:
                    k = lowest_bit(leads)
                    leads &= leads - ONE
                    code, after = decode(source, p + k, e)
                    char_flags = flags_of(pages, flags, code)
                    if char_flags & ALPHA:
                        alpha |= ONE << np.uint64(k)
                    elif char_flags & SPACE:
                        run = (ONE << np.uint64(after - p - k)) - ONE
                        spaces |= run << np.uint64(k)
                        if after - p > 64:
                            overflow = run >> np.uint64(64 - k)
                    else:
                        n_brackets += 1 if char_flags & ANGLE else 0
                        n_ellipses += 1 if char_flags & ELLIPSIS else 0
            n_chars += count_bits(valid & ~follow)
            n_spaces += count_bits(spaces & valid & ~follow)
            n_basic += count_bits(basic & valid)
            n_digits += count_bits(digits & valid)
            n_alpha += count_bits(alpha & valid)
            n_alnum += count_bits(alnum & valid)
            n_brackets += count_bits(brackets & valid)
            n_curly += count_bits(curly & valid)
            n_hashes += count_bits(mask_eq(block, i, 35) & valid)
            n_newlines += count_bits(newlines)
            words = ~spaces & valid
            begins = words & ~((words << ONE) | inside)
            n_words += count_bits(begins)
            # The runs of no letters that begin a word, or continue from the previous block, carried to where they end.
            plain = words & ~alpha
            seeds = begins | (bare & words)
            carried = (seeds & plain) + plain
            over = carried < plain
            n_bare += count_bits((carried & ~plain & spaces & valid) | (bare & ~words))
            if e - p >= 64:
                bare = ONE if over else ZERO
                inside = words >> np.uint64(63)
            else:
                # A run that reaches the end of the text carries into the first bit beyond it.
                n_bare += count_bits(carried & ~valid & ~plain)
                bare = inside = ZERO
            while dots != ZERO:
                here = p + lowest_bit(dots)
                dots &= dots - ONE
                n_dots = n_dots + 1 if here == last_dot + 1 else 1
                last_dot = here
                if n_dots == 3:
                    n_ellipses += 1
                    n_dots = 0
            p += 64
        n_bare += np.int64(bare)
        counts = (
            n_chars, n_spaces, n_basic, n_digits, n_alpha, n_alnum,
            n_brackets, n_hashes, n_ellipses, n_newlines, n_curly,
            n_words, n_words - n_bare,
        )  # fmt: skip
        put_counts(out, row, counts)


def char_counts(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> dict[str, NDArray[np.int64]]:
    """Return one array per name of COUNTS over the documents data[starts[i]:ends[i])."""
    out = room_for(COUNTS, starts.size)
    _count(data, starts, ends, PAGE_OF, FLAGS, np.zeros(PAD, np.uint8), out)
    return by_name(COUNTS, out)
