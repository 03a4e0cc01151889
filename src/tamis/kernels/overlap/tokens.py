"""Tokens of a text and their hashes: character by character as folding.py says, and of ASCII text 64 bytes at a time.

The hash of the letters a, b, c is a * F**3 + b * F**2 + c * F modulo 2**64, so that the letters of a word are
multiplied independently of each other, eight at a time. Helpers for the kernels of this group.
"""
# Compiled functions carry their types in the signatures of the kernels; numbers there change from int to int64.
# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

import numpy as np

from tamis.kernels.language.intrinsics import at, count_bits, load_u64, lowest_bit, mask_ge, mask_lt, put
from tamis.kernels.language.jit import helper
from tamis.kernels.overlap.folding import (
    IGNORED,
    KIND_SHIFT,
    LETTER,
    N_SHIFT,
    SEPARATOR,
    SIZE_SHIFT,
    WEIGHT_OF_WORD,
    WORD,
)
from tamis.kernels.overlap.letters import CODE_MASK, entry_at, weight_of
from tamis.kernels.sketch._shingles import mix
from tamis.kernels.text._blocks import ALL, ONE, ZERO, valid_mask

RING = 512  # a power of two above the tokens of a window and those of which the windows are not yet looked up
MASK = RING - 1
BLOCK_BYTES = 72  # that must be readable: a block, and the eight bytes from its last one on
_F1 = np.uint64(0x9E3779B97F4A7C15)
_F2, _F3, _F4, _F5, _F6, _F7, _F8 = (np.uint64(pow(int(_F1), k, 1 << 64)) for k in range(2, 9))
_LOWER = np.uint64(0x2020202020202020)
_8, _16, _24, _32, _40, _48, _56, _BYTE = (np.uint64(n) for n in (8, 16, 24, 32, 40, 48, 56, 255))


@helper
def _eight(letters):
    """Return the hash of the letters in eight bytes, which zeros come before."""
    h = (letters & _BYTE) * _F8 + (letters >> _8 & _BYTE) * _F7
    h += (letters >> _16 & _BYTE) * _F6 + (letters >> _24 & _BYTE) * _F5
    h += (letters >> _32 & _BYTE) * _F4 + (letters >> _40 & _BYTE) * _F3
    return h + (letters >> _48 & _BYTE) * _F2 + (letters >> _56) * _F1


@helper
def _hash_of(source, p, n_letters):
    """Return the hash of a word of 1 to 63 ASCII letters."""
    some = ((n_letters - 1) & 7) + 1
    h = _eight((load_u64(source, p) | _LOWER) << np.uint64(64 - 8 * some))
    while some < n_letters:
        h = h * _F8 + _eight(load_u64(source, p + some) | _LOWER)
        some += 8
    return h


@helper
def _put(n, unit, begin, end, weight, tokens):
    """Store token n: its hash, its bytes, and the weight of all up to its end."""
    units, begins, ends, totals = tokens
    put(units, n & MASK, unit)
    put(begins, n & MASK, begin)
    put(ends, n & MASK, end)
    put(totals, (n + 1) & MASK, at(totals, n & MASK) + weight)


@helper
def add_ascii_words(source, p, e, n, tokens):
    """Add the words that end in the 64 bytes at p, as token n and on; return (position after them, number of tokens).

    Stops at a character that is not ASCII, and before the word that continues with it or beyond these bytes. Where
    that word begins at p nothing is done, and `add_token` continues. BLOCK_BYTES at p must be readable.
    """
    valid = valid_mask(p, e)
    words = mask_ge(source, p, 48) & mask_lt(source, p, 58)
    words |= mask_ge(source, p, 65) & mask_lt(source, p, 91)
    words |= mask_ge(source, p, 97) & mask_lt(source, p, 123)
    high = mask_ge(source, p, 128) & valid
    if high != ZERO:
        valid = (high & (~high + ONE)) - ONE
    words &= valid
    if high != ZERO or e - p > 64:  # the last word may continue: up to the last byte that belongs to none
        valid &= ~words
        for shift in range(6):
            valid |= valid >> (ONE << np.uint64(shift))
        words &= valid
    elif words == ALL:
        return p, n
    while words != ZERO:
        k = lowest_bit(words)
        n_letters = lowest_bit(~(words >> np.uint64(k)))
        unit = mix(_hash_of(source, p + k, n_letters))
        _put(n, unit, p + k, p + k + n_letters, WEIGHT_OF_WORD, tokens)
        n += 1
        words &= words + (ONE << np.uint64(k))
    return p + count_bits(valid), n


@helper
def add_token(source, p, e, j, n, tokens, tables):
    """Add the next token, if there is one, as token n; return (position, letters of its character that were read, n).

    To continue, pass position and letters as p and j.
    """
    plain, pages, entries, letters = tables
    h = ZERO
    begin = p
    last = p  # after the last letter of the word at `begin`
    inside = False
    while p < e:
        c = np.int64(at(source, p))
        if c < 128:
            letter = np.int64(at(plain, c))
            p += 1
            if letter == 0:
                if inside:
                    break
                continue
            begin = begin if inside else p - 1
            h = (h + np.uint64(letter)) * _F1
            inside = True
            last = p
            continue
        entry, after = entry_at(source, p, e, pages, entries)
        kind = entry >> KIND_SHIFT & 3
        size = entry >> SIZE_SHIFT & 3
        if kind == IGNORED or (kind == SEPARATOR and not inside):
            p = after
            continue
        if kind == SEPARATOR or size != WORD:
            if inside:
                break
            code = entry & CODE_MASK
            j += 1
            if kind != LETTER:
                code = np.int64(at(letters, code + j - 1))
            _put(n, mix(np.uint64(code) * _F1), p, after, weight_of(size), tokens)
            if kind == LETTER or j == entry >> N_SHIFT:
                return after, np.int64(0), n + 1
            return p, j, n + 1
        begin = begin if inside else p
        if kind == LETTER:
            h = (h + np.uint64(entry & CODE_MASK)) * _F1
        else:
            for k in range(entry >> N_SHIFT):
                h = (h + np.uint64(at(letters, (entry & CODE_MASK) + k))) * _F1
        inside = True
        p = after
        last = p
    if inside:
        _put(n, mix(h), begin, last, WEIGHT_OF_WORD, tokens)
        n += 1
    return p, np.int64(0), n
