"""64 bytes of text at a time as bit masks: bit k belongs to byte p + k. Helpers for the text kernels.

A block that reaches over the end of the buffer is copied into a zeroed pad first, so no kernel reads outside.
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from tamis.kernels.language.intrinsics import copy_bytes, count_bits, lowest_bit, mask_eq, mask_ge, mask_lt
from tamis.kernels.language.jit import helper
from tamis.kernels.text._unicode import SPACE, decode, flags_of

ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
ONE = np.uint64(1)
ZERO = np.uint64(0)
PAD = 192  # bytes a pad array must have


@helper
def block_at(source, size, p, e, pad):
    """Return (pointer, index) from which 128 bytes can be read as if at p; bytes beyond e are undefined."""
    if p + 128 <= size:
        return source, p
    n_bytes = e - p
    if n_bytes > 128:
        n_bytes = 128
    copy_bytes(pad, 0, source, p, n_bytes)
    return pad, 0


@helper
def valid_mask(p, e):
    """Return the bits of the block at p < e that belong to the text."""
    return ALL if e - p >= 64 else (ONE << np.uint64(e - p)) - ONE


@helper
def ascii_spaces(block, i):
    return (mask_ge(block, i, 9) & mask_lt(block, i, 14)) | (mask_ge(block, i, 28) & mask_lt(block, i, 33))


@helper
def wide_spaces(source, p, e, leads, pages, flags):
    """Return the bytes of the whitespace characters that begin at `leads`, and those of them in the next block."""
    bits = ZERO
    overflow = ZERO
    while leads != ZERO:
        k = lowest_bit(leads)
        leads &= leads - ONE
        code, after = decode(source, p + k, e)
        if flags_of(pages, flags, code) & SPACE:
            n_bytes = after - p - k
            run = (ONE << np.uint64(n_bytes)) - ONE
            bits |= run << np.uint64(k)
            if k + n_bytes > 64:
                overflow = run >> np.uint64(64 - k)
    return bits, overflow


@helper
def word_changes(source, size, p, e, pad, pages, flags, inside, overflow):
    """Return (bits where a word begins or ends in the block at p, inside, overflow), the last two for the next block.

    `inside` is 1 when the block before ended in a word; both are 0 at the beginning of a text.
    """
    block, i = block_at(source, size, p, e, pad)
    valid = valid_mask(p, e)
    spaces = ascii_spaces(block, i) | overflow
    overflow = ZERO
    high = mask_ge(block, i, 128) & valid
    if high != ZERO:
        wide, overflow = wide_spaces(source, p, e, high & mask_ge(block, i, 192), pages, flags)
        spaces |= wide
    words = ~spaces & valid
    return (words ^ ((words << ONE) | inside)) & valid, words >> np.uint64(63), overflow


@helper
def line_feed_search(s):
    """Return the start state of `next_line_feed`.

    The state is (block, its remaining line feeds, its characters, number of characters before the block).
    """
    return s - 64, ZERO, ZERO, np.int64(0)


@helper
def next_line_feed(source, size, e, pad, search):
    """Return (position of the next line feed or e, characters before it, whether it is e, search for the next)."""
    p, newlines, leads, n_before = search
    while newlines == ZERO and p + 64 < e:
        p += 64
        n_before += count_bits(leads)
        block, i = block_at(source, size, p, e, pad)
        valid = valid_mask(p, e)
        newlines = mask_eq(block, i, 10) & valid
        leads = valid & ~(mask_ge(block, i, 128) & mask_lt(block, i, 192))
    if newlines == ZERO:
        return e, n_before + count_bits(leads), True, (p, newlines, leads, n_before)
    k = lowest_bit(newlines)
    n_here = n_before + count_bits(leads & ((ONE << np.uint64(k)) - ONE))
    return p + k, n_here, False, (p, newlines & (newlines - ONE), leads, n_before)
