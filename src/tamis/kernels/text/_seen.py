"""A set of 128-bit hashes that is emptied by counting up an epoch. Helper for the line and paragraph kernels."""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.language.intrinsics import at, put
from tamis.kernels.language.jit import helper

SLOT = 3  # 64-bit words per slot: hash, hash, epoch
MAX_SLOTS = 1 << 20  # 24 MB; a document with more pieces than half of that is gone through several times


def new_set(n_pieces: int) -> NDArray[np.uint64]:
    """Return an empty set for documents of up to `n_pieces` lines or paragraphs."""
    n_slots = 1 << max(4, (2 * n_pieces - 1).bit_length())
    return np.zeros(SLOT * min(n_slots, MAX_SLOTS), np.uint64)


@helper
def slots_for(n_pieces, n_slots):
    """Return (slots to use, rounds to make): few slots for few pieces, so that they stay in the cache."""
    used = 16
    while used < n_slots and used < 2 * n_pieces:
        used *= 2
    return used, (2 * n_pieces + used - 1) // used


@helper
def is_new(table, n_slots, epoch, hi, lo):
    """Add a hash; whether it was absent."""
    k = np.int64(hi & np.uint64(n_slots - 1))
    while True:
        if at(table, SLOT * k + 2) != epoch:
            put(table, SLOT * k, hi)
            put(table, SLOT * k + 1, lo)
            put(table, SLOT * k + 2, epoch)
            return True
        if at(table, SLOT * k) == hi and at(table, SLOT * k + 1) == lo:
            return False
        k = (k + 1) & (n_slots - 1)
