"""Letters and tokens of one text, as folding.py defines them. Helpers for the kernels of this group."""
# Compiled functions carry their types in the signatures of the kernels; numbers there change from int to int64.
# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

import numpy as np

from tamis.kernels.language.intrinsics import at
from tamis.kernels.language.jit import helper
from tamis.kernels.overlap.folding import IGNORED, KIND_SHIFT, LETTER, N_SHIFT, SEPARATOR, SIZE_SHIFT, WORD
from tamis.kernels.text._unicode import decode

CODE_MASK = (1 << KIND_SHIFT) - 1


@helper
def entry_at(source, p, e, pages, entries):
    """(entry of the character at p < e, position after it)."""
    code, after = decode(source, p, e)
    return np.int64(at(entries, np.int64(at(pages, code >> 8)) << 8 | (code & 255))), after


@helper
def next_letter(source, p, e, k, pages, entries, letters):
    """(letter, its size, whether a separator came before it, position, letters of its character that were read).

    The letter is -1 at the end. To continue, pass position and number of letters as p and k.
    """
    parted = False
    while p < e:
        entry, after = entry_at(source, p, e, pages, entries)
        kind = entry >> KIND_SHIFT & 3
        size = entry >> SIZE_SHIFT & 3
        if kind == LETTER:
            return entry & CODE_MASK, size, parted, after, np.int64(0)
        if kind == SEPARATOR:
            parted = True
        elif kind != IGNORED:
            letter = np.int64(at(letters, (entry & CODE_MASK) + k))
            k += 1
            if k < entry >> N_SHIFT:
                return letter, size, parted, p, k
            return letter, size, parted, after, np.int64(0)
        p = after
    return np.int64(-1), np.int64(WORD), True, e, np.int64(0)


@helper
def weight_of(size):
    return 4 >> size
