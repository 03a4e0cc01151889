"""Words as str.split() gives them, their hashes and lengths. Helpers shared by the kernels that look at words.

First the places where words begin and end are taken from whitespace masks, 64 bytes at a time; then each word is read
in steps of 8 bytes, the first 16 without a branch. A hash is 64 bits; words of up to 8 bytes and equal length never
collide.
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from tamis.kernels.language.intrinsics import at, count_bits, load_u64, lowest_bit, put, rotl64
from tamis.kernels.language.jit import helper
from tamis.kernels.language.vectors import HAS_COMPRESS, HAS_PRODUCTS, hash_eight, store_more_places, store_places
from tamis.kernels.text._blocks import ONE, ZERO, word_changes

K1 = np.uint64(0x9E3779B97F4A7C15)
K2 = np.uint64(0xD6E8FEB86659FD93)
K3 = np.uint64(0xA0761D6478BD642F)
_29, _32 = np.uint64(29), np.uint64(32)
_HIGH_BITS = np.uint64(0x8080808080808080)


@helper
def put_places_narrow(marks, n_marks, base, bits):
    """Write base + k for each set bit k to marks[n_marks:], with room for 64 items; return the number of marks."""
    while bits != ZERO:
        put(marks, n_marks, base + lowest_bit(bits))
        bits &= bits - ONE
        n_marks += 1
    return n_marks


@helper
def put_places_wide(marks, n_marks, base, bits):
    n_places = count_bits(bits)
    store_places(marks, n_marks, base, bits)
    if n_places > 32:
        store_more_places(marks, n_marks, base, bits)
    return n_marks + n_places


put_places = put_places_wide if HAS_COMPRESS else put_places_narrow


@helper
def split_words(source, size, s, e, origin, limit, pad, pages, flags, marks):
    """Write begin and end (minus `origin`) of each word of buf[s:e) to marks; return the number of words.

    -1 when there are more than `limit`, for whom marks has two items each and 64 to spare.
    """
    n_marks = 0
    inside = ZERO
    overflow = ZERO
    p = s
    while p < e:
        if n_marks > 2 * limit:
            return -1
        changes, inside, overflow = word_changes(source, size, p, e, pad, pages, flags, inside, overflow)
        n_marks = put_places(marks, n_marks, p - origin, changes)
        p += 64
    if n_marks & 1:
        put(marks, n_marks, np.int32(e - origin))
        n_marks += 1
    return n_marks // 2 if n_marks <= 2 * limit else -1


@helper
def _kept(word, n_bytes):
    """Return the first 0 <= n_bytes of an 8-byte word, without a branch.

    A branch on the length costs more than the rest.
    """
    n = min(n_bytes, 8)
    return word & ((ONE << np.uint64((8 * n) & 63)) - ONE - np.uint64(n >> 3))


@helper
def _n_following(word):
    """UTF-8 continuation bytes among eight."""
    return count_bits(word & ~(word << ONE) & _HIGH_BITS)


@helper
def _load(source, size, p, n_bytes):
    """Load up to 8 bytes at p, zero-padded, never reading beyond `size`."""
    if p + 8 <= size:
        return _kept(load_u64(source, p), n_bytes)
    word = ZERO
    for k in range(min(n_bytes, 8)):
        word |= np.uint64(at(source, p + k)) << np.uint64(8 * k)
    return word


@helper
def _finish(h, n_bytes):
    h = (h ^ (h >> _29) ^ np.uint64(n_bytes)) * K3
    return h ^ (h >> _32)


@helper
def _read_long(source, size, p, n_bytes):
    """read_word for words of more than 16 bytes, and near the end of the buffer. Apart, to keep the other one small."""
    first = _load(source, size, p, n_bytes)
    second = _load(source, size, p + 8, n_bytes - 8) if n_bytes > 8 else ZERO
    n_follow = _n_following(first) + _n_following(second)
    h = first * K1
    h = ((h ^ (h >> _32)) + second) * K2
    k = 16
    while k < n_bytes:
        word = _load(source, size, p + k, n_bytes - k)
        n_follow += _n_following(word)
        h = ((rotl64(h, np.uint64(23)) ^ (h >> _29)) + word) * K1
        k += 8
    return _finish(h, n_bytes), n_bytes - n_follow, first


@helper
def read_word(source, size, p, n_bytes):
    """Return (hash, characters, first eight bytes) of a word."""
    if n_bytes > 16 or p + 16 > size:
        return _read_long(source, size, p, n_bytes)
    first = _kept(load_u64(source, p), n_bytes)
    second = _kept(load_u64(source, p + 8), max(n_bytes - 8, 0))
    h = first * K1
    h = ((h ^ (h >> _32)) + second) * K2
    return _finish(h, n_bytes), n_bytes - _n_following(first) - _n_following(second), first


@helper
def hash_word(source, size, p, n_bytes):
    """Return only the hash that `read_word` returns, in two thirds of the time."""
    if n_bytes > 16 or p + 16 > size:
        return _read_long(source, size, p, n_bytes)[0]
    first = load_u64(source, p)
    if n_bytes <= 8:
        shift = np.uint64(64 - 8 * n_bytes)
        h = ((first << shift) >> shift) * K1
        return _finish((h ^ (h >> _32)) * K2, n_bytes)
    shift = np.uint64(128 - 8 * n_bytes)
    h = first * K1
    return _finish(((h ^ (h >> _32)) + ((load_u64(source, p + 8) << shift) >> shift)) * K2, n_bytes)


@helper
def _hash_from(source, size, marks, k, n_words, out, to):
    while k < n_words:
        begin = at(marks, 2 * k)
        put(out, to, hash_word(source, size, begin, at(marks, 2 * k + 1) - begin))
        to += 1
        k += 1
    return to


@helper
def hash_words_narrow(source, size, marks, n_words, out, to):
    """Hash the words between marks to out[to:], with room for 8 more items; return the position after the last."""
    return _hash_from(source, size, marks, 0, n_words, out, to)


@helper
def hash_words_wide(source, size, marks, n_words, out, to):
    """Hash words like `hash_words_narrow`, eight at a time.

    Without this every second word length is mispredicted.
    """
    k = 0
    while k + 8 <= n_words and at(marks, 2 * k + 14) + 16 <= size:
        long = hash_eight(source, marks, 2 * k, out, to, K1, K2, K3)
        while long != ZERO:
            j = lowest_bit(long)
            begin = at(marks, 2 * (k + j))
            put(out, to + j, hash_word(source, size, begin, at(marks, 2 * (k + j) + 1) - begin))
            long &= long - ONE
        to += 8
        k += 8
    return _hash_from(source, size, marks, k, n_words, out, to)


hash_words = hash_words_wide if HAS_PRODUCTS else hash_words_narrow
