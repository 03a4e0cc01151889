"""Byte-pair merging of one word: always the pair of lowest rank, of several the leftmost.

Pairs are in an open-addressing table of uint64 pairs: [left id << 32 | right id, rank << 32 | merged id]; `NO_PAIR` as
key is free. Behind them is a filter with eight bits for each slot: most pairs are not there, and a bit that is not set
says so without a look at the slots. A word begins as symbols: its bytes, or its characters. Words of up to `SHORT`
symbols are merged by comparing all pairs at once, in lanes of 32 bits. Longer ones use a heap of (rank, position) over
a linked list: O(n log n). Memory: 44 bytes for each byte of the longest word, or of a window.

Words longer than a window are merged window by window, with the same tokens. Where merging a text leaves two tokens
next to each other, merging them alone leaves them, too, since nothing was merged across. And if the last token of one
text and the first of the next stay apart when merged alone, they do so in both texts together: merges on either side
come in the same order, so that the first one across would come alone, too. So a window's tokens are final up to a token
whose follower is also the first that the rest has.
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from tamis.kernels.language.intrinsics import at, highest_bit, least_of_16, least_of_64, lowest_bit, put
from tamis.kernels.language.jit import helper
from tamis.kernels.text._unicode import decode

SHORT = 64  # bits of a word of the machine
MAX_RANK = 1 << 26  # with a position below SHORT in 32 bits
NO_KEY = np.uint32(0xFFFFFFFF)
HEAP_PER_BYTE = 3
NO_PAIR = np.uint64(0xFFFFFFFFFFFFFFFF)
_32, _LOWER = np.uint64(32), np.uint64(0xFFFFFFFF)
_P1, _P2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_NONE, _ONE, _TWO, _THREE = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(3)
_SIX, _SEVEN, _LOW_SIX = np.uint64(6), np.uint64(7), np.uint64(63)


@helper
def pair_hash(key, salt):
    """Return the hash of a pair, for `pair_slot` and `filter_place`."""
    h = (key ^ salt) * _P1
    return (h ^ (h >> _32)) * _P2


@helper
def pair_slot(h, mask):
    """Return the slot at which the search for a pair begins, by its hash."""
    return (h >> np.uint64(29)) & mask


@helper
def filter_place(h, mask):
    """Return which number of `pairs`, and which bit of that, is set if a pair of this hash is in the table."""
    bit = (h >> np.uint64(40)) & ((mask << _THREE) | _SEVEN)
    return np.int64(((mask + _ONE) << _ONE) + (bit >> _SIX)), bit & _LOW_SIX


@helper
def pair_mask(n):
    """Return the mask of slots, from the size of a whole table of pairs."""
    return (_ONE << np.uint64(highest_bit(np.uint64(n >> 1)))) - _ONE


@helper
def merged(left, right, pairs, mask, salt):
    """Return rank << 32 | id of what two tokens make, or NO_PAIR."""
    key = (np.uint64(left) << _32) | np.uint64(right)
    h = pair_hash(key, salt)
    place, bit = filter_place(h, mask)
    if (at(pairs, place) >> bit) & _ONE == _NONE:
        return NO_PAIR
    i = pair_slot(h, mask)
    while True:
        found = at(pairs, np.int64(i << _ONE))
        if found == key:
            return at(pairs, np.int64((i << _ONE) | _ONE))
        if found == NO_PAIR:
            return NO_PAIR
        i = (i + _ONE) & mask


@helper
def bytes_as_symbols(source, p, n, byte_ids, byte_pairs, ids, values):
    """Put the ids of the bytes source[p:p + n), and what each makes with the next one; how many there are."""
    previous = np.int64(at(source, p))
    put(ids, 0, at(byte_ids, previous))
    for k in range(1, n):
        c = np.int64(at(source, p + k))
        put(ids, k, at(byte_ids, c))
        put(values, k - 1, at(byte_pairs, (previous << 8) | c))
        previous = c
    put(values, n - 1, NO_PAIR)
    return n


@helper
def chars_as_symbols(source, p, n, char_pages, char_ids, byte_ids, pairs, mask, salt, ids, values):
    """Like `bytes_as_symbols`, of characters; those without an id become their bytes."""
    end = p + n
    n_symbols = np.int64(0)
    while p < end:
        code, after = decode(source, p, end)
        symbol = at(char_ids, (np.int64(at(char_pages, code >> 8)) << 8) | (code & 255))
        if symbol >= 0:
            put(ids, n_symbols, symbol)
            n_symbols += 1
        else:
            for k in range(p, after):
                put(ids, n_symbols, at(byte_ids, np.int64(at(source, k))))
                n_symbols += 1
        p = after
    for k in range(n_symbols - 1):
        put(values, k, merged(np.int64(at(ids, k)), np.int64(at(ids, k + 1)), pairs, mask, salt))
    put(values, n_symbols - 1, NO_PAIR)
    return n_symbols


@helper
def merge_short(n, pairs, mask, salt, ids, values, keys, made):
    """Merge the n <= SHORT symbols in `ids`, whose pairs are in `values`; how many tokens there are.

    keys: SHORT of rank << 6 | position, or NO_KEY. made: what the symbol there becomes with the next one. A bit of
    `alive` is a symbol that is left.
    """
    is_tiny = n <= 16
    for k in range(n, 16 if is_tiny else SHORT):
        put(keys, k, NO_KEY)
    for k in range(n):
        _set_pair(at(values, k), k, keys, made)
    alive = _ONE if n == 1 else ((_ONE << np.uint64(n - 1)) << _ONE) - _ONE
    while True:
        least = least_of_16(keys, 0) if is_tiny else least_of_64(keys, 0)
        if least == NO_KEY:
            break
        i = np.int64(least) & (SHORT - 1)
        behind = alive & ~((_TWO << np.uint64(i)) - _ONE)
        right = lowest_bit(behind)
        behind &= behind - _ONE
        before = alive & ((_ONE << np.uint64(i)) - _ONE)
        alive ^= _ONE << np.uint64(right)
        new = np.int64(at(made, i))
        put(ids, i, np.int32(new))
        put(keys, right, NO_KEY)
        value = NO_PAIR
        if behind != _NONE:
            value = merged(new, np.int64(at(ids, lowest_bit(behind))), pairs, mask, salt)
        _set_pair(value, i, keys, made)
        if before != _NONE:
            left = highest_bit(before)
            _set_pair(merged(np.int64(at(ids, left)), new, pairs, mask, salt), left, keys, made)
    n_ids = np.int64(0)
    while alive != _NONE:
        put(ids, n_ids, at(ids, lowest_bit(alive)))
        alive &= alive - _ONE
        n_ids += 1
    return n_ids


@helper
def _set_pair(value, k, keys, made):
    """Put what the symbol at k makes with the next one: rank << 32 | id, or NO_PAIR."""
    put(keys, k, NO_KEY if value == NO_PAIR else np.uint32(((value >> _32) << np.uint64(6)) | np.uint64(k)))
    put(made, k, np.int32(value & _LOWER))


@helper
def _push(heap, size, item):
    i = size
    while i > 0:
        parent = (i - 1) >> 1
        above = at(heap, parent)
        if above <= item:
            break
        put(heap, i, above)
        i = parent
    put(heap, i, item)


@helper
def _sink(heap, size, i, item):
    """Put an item at i, or below where that has smaller ones."""
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        least = at(heap, child)
        if child + 1 < size:
            other = at(heap, child + 1)
            if other < least:
                child += 1
                least = other
        if item <= least:
            break
        put(heap, i, least)
        i = child
    put(heap, i, item)


@helper
def merge_long(n, pairs, mask, salt, ids, values, before, behind, heap):
    """Like `merge_short`; `before` has then the first symbol of each token."""
    size = np.int64(0)
    for k in range(n):
        put(before, k, k - 1)
        put(behind, k, k + 1)
        value = at(values, k)
        if value != NO_PAIR:
            put(heap, size, (value & ~_LOWER) | np.uint64(k))
            size += 1
    for k in range(size // 2 - 1, -1, -1):
        _sink(heap, size, k, at(heap, k))
    while size > 0:
        top = at(heap, 0)
        size -= 1
        if size > 0:
            _sink(heap, size, 0, at(heap, size))
        i = np.int64(top & _LOWER)
        value = at(values, i)
        if value == NO_PAIR or value >> _32 != top >> _32:
            continue  # one of the two has been merged since
        right = np.int64(at(behind, i))
        follower = np.int64(at(behind, right))
        put(ids, i, np.int32(value & _LOWER))
        put(values, right, NO_PAIR)
        put(behind, i, follower)
        value = NO_PAIR
        if follower < n:
            put(before, follower, i)
            value = merged(np.int64(at(ids, i)), np.int64(at(ids, follower)), pairs, mask, salt)
        put(values, i, value)
        if value != NO_PAIR:
            _push(heap, size, (value & ~_LOWER) | np.uint64(i))
            size += 1
        left = np.int64(at(before, i))
        if left >= 0:
            value = merged(np.int64(at(ids, left)), np.int64(at(ids, i)), pairs, mask, salt)
            put(values, left, value)
            if value != NO_PAIR:
                _push(heap, size, (value & ~_LOWER) | np.uint64(left))
                size += 1
    n_ids = np.int64(0)
    i = np.int64(0)
    while i < n:
        put(ids, n_ids, at(ids, i))
        put(before, n_ids, i)
        n_ids += 1
        i = np.int64(at(behind, i))
    return n_ids


@helper
def settled(source, p, end, of_chars, char_pages, char_ids, before, n_tokens):
    """Return (tokens, bytes) of the longest beginning of a window at p that ends at or before `end`.

    It ends with a token and with a character. `before`: the first symbol of each token of the window.
    """
    start = p
    symbol = token = tokens = n_bytes = np.int64(0)
    while p <= end and token < n_tokens:
        if np.int64(at(before, token)) == symbol:
            tokens = token
            n_bytes = p - start
            token += 1
        after = p + 1
        n_symbols = np.int64(1)
        if of_chars:
            code, after = decode(source, p, end + 4)
            if at(char_ids, (np.int64(at(char_pages, code >> 8)) << 8) | (code & 255)) < 0:
                n_symbols = after - p
        symbol += n_symbols
        while token < n_tokens and np.int64(at(before, token)) < symbol:
            token += 1
        p = after
    return tokens, n_bytes
