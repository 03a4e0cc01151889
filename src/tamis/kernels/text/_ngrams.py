"""Repeated n-grams of the words of one document. Helpers for the repetition kernel.

An n-gram is repeated only where the (n-1)-grams at its place and the next are, so each level looks at fewer places
than the one before. Words and pairs of words, by 64-bit hashes, first go through a filter of bytes; repeated pairs
get an id in the order of first appearance, and from there on the two ids of neighbours are an exact key. The table is
emptied by counting up an epoch.
"""
# Compiled functions carry their types in the signatures of the kernels; numbers there change from int to int64.
# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

import numpy as np

from tamis.kernels.language.intrinsics import at, copy_bytes, load_u64, lowest_bit, mask_eq, put, rotl64, store_u64
from tamis.kernels.language.jit import helper
from tamis.kernels.records.hash128 import hash_bytes
from tamis.kernels.text._blocks import ONE, ZERO, block_at, valid_mask
from tamis.kernels.text._words import K1

MAX_N = 10
WIDTH = 4 * MAX_N + 4  # fractions per document: kind * (MAX_N + 1) + n
TOP, DUPLICATE, GOPHER_TOP, GOPHER_DUPLICATE = 0, 11, 22, 33
PREFIX = 16  # bytes by which repeated runs of joined words are first guessed
FILTER = 4  # bytes of filter per slot of the table
_32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


@helper
def enter(table, n_slots, epoch, key, mixed, new_id):
    """Return the id of `key`, which is set to new_id if it was absent.

    `mixed` is its hash, good in the low bits. Whether a key is new cannot be predicted, so the first slot is written in
    either case; only collisions branch.
    """
    k = np.int64(mixed & np.uint64(n_slots - 1))
    fresh = epoch << _32 | np.uint64(new_id)
    state = at(table, 2 * k + 1)
    there = at(table, 2 * k)
    empty = state >> _32 != epoch
    if not (np.int64(empty) | np.int64(there == key)):
        return _enter_next(table, n_slots, epoch, key, k, fresh)
    state = fresh if empty else state
    put(table, 2 * k, key)
    put(table, 2 * k + 1, state)
    return np.int64(state & _LOW)


@helper
def _enter_next(table, n_slots, epoch, key, k, fresh):
    while True:
        k = (k + 1) & (n_slots - 1)
        state = at(table, 2 * k + 1)
        if state >> _32 != epoch:
            put(table, 2 * k, key)
            put(table, 2 * k + 1, fresh)
            return np.int64(fresh & _LOW)
        if at(table, 2 * k) == key:
            return np.int64(state & _LOW)


@helper
def _mix(key):
    key *= K1
    return key ^ (key >> _32)


@helper
def _key(ids, k):
    return np.uint64(at(ids, k)) << _32 | np.uint64(at(ids, k + 1))


@helper
def _pair(h, following):
    return _mix(h + rotl64(following, np.uint64(29)))


@helper
def empty_filter(filter_, n_bytes):
    for k in range(0, n_bytes, 8):
        store_u64(filter_, k, ZERO)


@helper
def note(filter_, n_bytes, key):
    """Count in one byte, without a branch: 0, 1, 3, 7, ... 255. Above 1: perhaps more than once; else surely not."""
    k = np.int64(key & np.uint64(n_bytes - 1))
    put(filter_, k, np.uint8(at(filter_, k) << 1 | 1))


@helper
def _noted(filter_, n_bytes, key):
    return np.int64(at(filter_, np.int64(key & np.uint64(n_bytes - 1))) > 1)


@helper
def _pairs(n_words, hashes, filter_, n_bytes, places):
    """Write the positions of pairs of words that may be repeated, and return their number; the filter holds the words.

    Two rounds of the filter leave a third of all places to the table, which costs five times as much for each.
    """
    n_places = 0
    repeated = _noted(filter_, n_bytes, at(hashes, 0))
    for k in range(n_words - 1):
        following = _noted(filter_, n_bytes, at(hashes, k + 1))
        put(places, n_places, np.int32(k))
        n_places += repeated & following
        repeated = following
    empty_filter(filter_, n_bytes)
    for j in range(n_places):
        k = np.int64(at(places, j))
        note(filter_, n_bytes, _pair(at(hashes, k), at(hashes, k + 1)))
    n_left = 0
    for j in range(n_places):
        k = np.int64(at(places, j))
        put(places, n_left, np.int32(k))
        n_left += _noted(filter_, n_bytes, _pair(at(hashes, k), at(hashes, k + 1)))
    return n_left


@helper
def _same_bytes(source, size, p, q, n_bytes):
    while n_bytes >= 8 and p + 8 <= size and q + 8 <= size:
        if load_u64(source, p) != load_u64(source, q):
            return False
        p += 8
        q += 8
        n_bytes -= 8
    while n_bytes > 0 and at(source, p + n_bytes - 1) == at(source, q + n_bytes - 1):
        n_bytes -= 1
    return n_bytes <= 0


@helper
def _same_end(source, p, q, n_bytes):
    """Compare backwards, so that it stops at the whitespace before a shorter word."""
    k = n_bytes - 1
    while k >= 0:
        if at(source, p + k) != at(source, q + k):
            return False
        k -= 1
    return True


@helper
def n_removed(source, size, s, e, marks, t, n, pad):
    """Count how often text.replace would remove words t to t + n - 1 joined by spaces: non-overlapping matches."""
    first = s + at(marks, 2 * t)
    n_first = at(marks, 2 * t + 1) - at(marks, 2 * t)
    before = at(source, first + n_first - 1)
    after = at(source, s + at(marks, 2 * t + 2))
    free = s
    n_found = 0
    p = s
    while p < e:
        block, i = block_at(source, size, p, e, pad)
        stops = mask_eq(block, i, before) & mask_eq(block, i + 1, 32) & mask_eq(block, i + 2, after) & valid_mask(p, e)
        while stops != ZERO:
            q = p + lowest_bit(stops) + 1  # the space after the first word
            stops &= stops - ONE
            if q - n_first < free or q >= e or not _same_end(source, q - n_first, first, n_first):
                continue
            to = q
            for k in range(t + 1, t + n):
                begin = at(marks, 2 * k)
                n_bytes = at(marks, 2 * k + 1) - begin
                if to >= e or at(source, to) != 32 or to + 1 + n_bytes > e:
                    to = np.int64(-1)
                    break
                if not _same_bytes(source, size, to + 1, s + begin, n_bytes):
                    to = np.int64(-1)
                    break
                to += 1 + n_bytes
            if to >= 0:
                n_found += 1
                free = to
        p += 64
    return n_found


@helper
def levels(source, size, s, e, n_words, n_chars, last_n, duplicates, tops, work, pad, fractions, base):
    """Compute levels 2 to last_n; the filter holds all words.

    `duplicates` and `tops` have bit n where they are requested.

    `work` = (table, slots, epoch, marks, total characters before each word, ids, counts, first places, places, hashes,
    filter). Returns the epoch.
    """
    table, n_slots, epoch, marks, totals, ids, counts, firsts, places, hashes, filter_ = work
    n_places = _pairs(n_words, hashes, filter_, FILTER * n_slots, places)
    for n in range(2, min(last_n, n_words) + 1):
        epoch += ONE
        n_ids = 0
        n_duplicate = 0
        if duplicates >> n & 1:
            covered = np.int64(0)  # words before this one are counted already
            for j in range(n_places):
                k = np.int64(at(places, j))
                key = _pair(at(hashes, k), at(hashes, k + 1)) if n == 2 else _key(ids, k)
                entry = enter(table, n_slots, epoch, key, _mix(key), np.int64(n_ids))
                put(ids, k, np.int32(entry))
                put(firsts, n_ids, np.int32(k))
                put(counts, entry, np.int32(1 if entry == n_ids else at(counts, entry) + 1))
                if entry == n_ids:
                    n_ids += 1
                else:
                    begin = max(k, covered)
                    n_duplicate += at(totals, k + n) - at(totals, begin) + min(k + n - begin, n - 1)
                    covered = k + n
        else:
            for j in range(n_places):
                k = np.int64(at(places, j))
                key = _pair(at(hashes, k), at(hashes, k + 1)) if n == 2 else _key(ids, k)
                entry = enter(table, n_slots, epoch, key, _mix(key), np.int64(n_ids))
                put(ids, k, np.int32(entry))
                put(firsts, n_ids, np.int32(k))
                put(counts, entry, np.int32(1 if entry == n_ids else at(counts, entry) + 1))
                n_ids += entry == n_ids
        put(fractions, base + DUPLICATE + n, n_duplicate / n_chars)
        # The most frequent n-gram, of several the first; where none is repeated the first of the text.
        best = 1
        top = np.int64(0)
        for k in range(n_ids):
            if at(counts, k) > best:
                best = np.int64(at(counts, k))
                top = np.int64(at(firsts, k))
        top_chars = at(totals, top + n) - at(totals, top) + n - 1
        put(fractions, base + GOPHER_TOP + n, top_chars * best / n_chars)
        if tops >> n & 1:
            put(fractions, base + TOP + n, top_chars * n_removed(source, size, s, e, marks, top, n, pad) / n_chars)
        # Places where this n-gram and the next one are repeated.
        n_left = 0
        for j in range(n_places - 1):
            k = at(places, j)
            near = np.int64(at(places, j + 1) == k + 1)
            put(places, n_left, k)
            n_left += near & np.int64(at(counts, at(ids, k)) > 1) & np.int64(at(counts, at(ids, k + near)) > 1)
        n_places = n_left
    return epoch


@helper
def joined(source, size, s, n_words, n_chars, wanted, work, text, fractions, base):
    """Compute Gopher's duplicate n-grams: words joined without spaces; after a duplicate its n words are skipped.

    `text` takes the words joined; ids, counts and firsts are overwritten. Returns the epoch.
    """
    table, n_slots, epoch, marks, totals, ids, counts, firsts, places, _, _ = work
    epoch += ONE
    n_text = 0
    for k in range(n_words):
        n_bytes = np.int64(at(marks, 2 * k + 1) - at(marks, 2 * k))
        put(firsts, k, np.int32(n_text))
        begin = s + at(marks, 2 * k)
        if n_bytes <= 16 and begin + 16 <= size:  # most words; what is too much is overwritten by the next
            store_u64(text, n_text, load_u64(source, begin))
            store_u64(text, n_text + 8, load_u64(source, begin + 8))
        else:
            copy_bytes(text, n_text, source, begin, n_bytes)
        n_text += n_bytes
    put(firsts, n_words, np.int32(n_text))
    # Places whose first bytes occur elsewhere too, or whose shortest n-gram is too short to decide.
    least = 2
    while not wanted >> least & 1:
        least += 1
    n_ids = 0
    for k in range(n_words):
        begin = np.int64(at(firsts, k))
        if begin + PREFIX > n_text:
            put(ids, k, np.int32(-1))
            continue
        key = _mix(load_u64(text, begin)) + load_u64(text, begin + 8)
        entry = enter(table, n_slots, epoch, key, _mix(key), np.int64(n_ids))
        put(ids, k, np.int32(entry))
        if entry == n_ids:
            put(counts, entry, np.int32(1))
            n_ids += 1
        else:
            put(counts, entry, np.int32(at(counts, entry) + 1))
    n_places = 0
    for k in range(n_words - 1):
        put(places, n_places, np.int32(k))
        short = at(ids, k) < 0 or at(firsts, min(k + least, n_words)) - at(firsts, k) < PREFIX
        n_places += short or at(counts, at(ids, k)) > 1
    for n in range(2, MAX_N + 1):
        if not wanted >> n & 1:
            continue
        epoch += ONE
        n_duplicate = 0
        n_ids = 0
        free = 0
        for j in range(n_places):
            k = np.int64(at(places, j))
            if k < free or k + n > n_words:
                continue
            begin = np.int64(at(firsts, k))
            key, low = hash_bytes(text, n_text, begin, at(firsts, k + n) - begin, ZERO)
            if enter(table, n_slots, epoch, key, low, np.int64(n_ids)) == n_ids:
                n_ids += 1
            else:
                n_duplicate += at(totals, k + n) - at(totals, k)
                free = k + n
        put(fractions, base + GOPHER_DUPLICATE + n, n_duplicate / n_chars)
    return epoch
