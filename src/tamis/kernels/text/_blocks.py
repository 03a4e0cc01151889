"""64 bytes of text at a time as bit masks: bit k belongs to byte p + k. Helpers for the text kernels.

A block that reaches over the end of the buffer is copied into a zeroed pad first, so no kernel reads outside.
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from tamis.kernels._intrinsics import copy_bytes, lowest_bit, mask_ge, mask_lt
from tamis.kernels._jit import helper
from tamis.kernels.text._unicode import SPACE, decode, flags_of

ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
ONE = np.uint64(1)
ZERO = np.uint64(0)
PAD = 192  # bytes a pad array must have


@helper
def block_at(source, size, p, e, pad):
    """(pointer, index) from which 128 bytes can be read as if at p; what lies beyond e is not to be looked at."""
    if p + 128 <= size:
        return source, p
    n_bytes = e - p
    if n_bytes > 128:
        n_bytes = 128
    copy_bytes(pad, 0, source, p, n_bytes)
    return pad, 0


@helper
def valid_mask(p, e):
    """The bits of the block at p < e that belong to the text."""
    return ALL if e - p >= 64 else (ONE << np.uint64(e - p)) - ONE


@helper
def ascii_spaces(block, i):
    return (mask_ge(block, i, 9) & mask_lt(block, i, 14)) | (mask_ge(block, i, 28) & mask_lt(block, i, 33))


@helper
def wide_spaces(source, p, e, leads, pages, flags):
    """(bits, overflow): all bytes of the whitespace characters that begin at `leads`; overflow is for the next block."""
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
