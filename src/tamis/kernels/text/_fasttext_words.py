"""Words of a text as fastText splits it, read ahead so that their slots can be prefetched. Helpers.

Data on a word of up to KEY_BYTES is in a slot of eight numbers: the word itself (four), and the number of rows of its
sum, plus one. A word has no NUL, so its bytes padded with zeros are an exact key, and no word's key is all zeros.
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from tamis.kernels.language.intrinsics import at, load_u64, lowest_bit, mask_eq, mask_ge, mask_lt, prefetch, put, rotl64
from tamis.kernels.language.jit import helper
from tamis.kernels.text._blocks import ONE, ZERO, block_at, valid_mask

KEY_BYTES = 32
SLOT = 8  # 64-bit numbers
N_AHEAD = 32  # words read before the first of them is looked up
AHEAD_ITEMS = N_AHEAD + 34  # a block of 64 bytes begins up to 33
# Items of `ahead`, for each word: its key, where it begins, its bytes, its slot.
BEGIN, N_BYTES, SLOT_OF, AHEAD = 4, 5, 6, 7

_K1 = np.uint64(0x9E3779B97F4A7C15)
_K2 = np.uint64(0xD6E8FEB86659FD93)
_K3 = np.uint64(0xA0761D6478BD642F)
_23, _29, _32, _40 = np.uint64(23), np.uint64(29), np.uint64(32), np.uint64(40)


@helper
def _part(source, size, p, n_bytes):
    """Return up to eight bytes at p as a number, none if n_bytes is 0 or less; never read beyond `size`."""
    n = max(min(n_bytes, 8), 0)
    if p + 8 <= size:
        return load_u64(source, p) & ((ONE << np.uint64((8 * n) & 63)) - ONE - np.uint64(n >> 3))
    word = ZERO
    for k in range(n):
        word |= np.uint64(at(source, p + k)) << np.uint64(8 * k)
    return word


@helper
def note_word(source, size, begin, end, n_slots, slots, sums, stride, ahead, n_ahead):
    """Put a word at place n_ahead of `ahead`, and ask for its slot and its sum.

    The one after the last slot is for words too long to keep.
    """
    n_bytes = end - begin
    base = AHEAD * n_ahead
    first = _part(source, size, begin, n_bytes)
    second = _part(source, size, begin + 8, n_bytes - 8)
    third = fourth = ZERO
    h = first * _K1
    h = ((h ^ (h >> _32)) + second) * _K2
    if n_bytes > 16:
        third = _part(source, size, begin + 16, n_bytes - 16)
        fourth = _part(source, size, begin + 24, n_bytes - 24)
        h = ((rotl64(h, _23) ^ (h >> _29)) + third) * _K1
        h = ((h ^ (h >> _32)) + fourth) * _K2
    slot = np.int64(((h ^ (h >> _29)) * _K3 >> _40) & np.uint64(n_slots - 1)) if n_bytes <= KEY_BYTES else n_slots
    prefetch(slots, SLOT * slot)
    prefetch(sums, stride * slot)
    put(ahead, base, first)
    put(ahead, base + 1, second)
    put(ahead, base + 2, third)
    put(ahead, base + 3, fourth)
    put(ahead, base + BEGIN, np.uint64(begin))
    put(ahead, base + N_BYTES, np.uint64(n_bytes))
    put(ahead, base + SLOT_OF, np.uint64(slot))


@helper
def is_known(slots, slot, ahead, base):
    is_same = at(slots, SLOT * slot) == at(ahead, base) and at(slots, SLOT * slot + 1) == at(ahead, base + 1)
    is_same = is_same and at(slots, SLOT * slot + 2) == at(ahead, base + 2)
    return is_same and at(slots, SLOT * slot + 3) == at(ahead, base + 3)


@helper
def read_words(text, size, p, end, inside, begin, pad, n_slots, slots, sums, stride, ahead):
    """Note words of text[p:end), at most AHEAD_ITEMS: (how many, p and `inside` and `begin` for the next call).

    `inside`: the text before p ends in a word, which begins at `begin`. Done when p reaches the end.
    """
    n_ahead = 0
    while p < end and n_ahead < N_AHEAD:
        block, i = block_at(text, size, p, end, pad)
        valid = valid_mask(p, end)
        spaces = mask_eq(block, i, 32) | (mask_ge(block, i, 9) & mask_lt(block, i, 14)) | mask_eq(block, i, 0)
        words = ~spaces & valid
        changes = (words ^ ((words << ONE) | inside)) & valid
        while changes != ZERO:
            here = p + lowest_bit(changes)
            changes &= changes - ONE
            if inside != ZERO:
                note_word(text, size, begin, here, n_slots, slots, sums, stride, ahead, n_ahead)
                n_ahead += 1
                inside = ZERO
            else:
                begin = here
                inside = ONE
        p += 64
    if p >= end and inside != ZERO:
        note_word(text, size, begin, end, n_slots, slots, sums, stride, ahead, n_ahead)
        n_ahead += 1
        inside = ZERO
    return n_ahead, p, inside, begin
