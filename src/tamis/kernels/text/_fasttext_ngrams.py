"""Character n-grams of a word, hashed as fastText does, and their rows of a model's input matrix. Helpers.

Rows are added in one order, by the position of an n-gram and then by its length, so that a word's sum has the same
bits however its n-grams were found. ASCII words, which are most, are hashed WINDOW positions at a time in plain loops
over arrays that compilers vectorize; others character by character. Rows are spread over the matrix, and buckets over
their table: both are prefetched some steps before they are read.
"""
# Compiled functions carry their types in the signatures of the kernels; numbers there change from int to int64.
# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

import numpy as np

from tamis.kernels.language.intrinsics import at, prefetch, put
from tamis.kernels.language.jit import helper
from tamis.kernels.text._fasttext_rows import DATA, QUANTISED, add_row
from tamis.kernels.text.fasttext_tables import (
    BUCKET,
    DIM,
    FNV_PRIME,
    FNV_START,
    MAXN,
    MINN,
    N_PRUNED,
    N_WORDS,
    fnv,
    kept_bit,
    pruned_slot,
)

N_WAITING = 64
WINDOW = 128
MOST_N = 8  # of n-grams that are hashed in windows
# Items of the scratch arrays `waiting` (int64) and `hashed` (uint32).
WAITING_ITEMS = N_WAITING + MOST_N
HASHED_ITEMS = (WINDOW + MOST_N) + WINDOW + MOST_N * WINDOW
_HASHES = WINDOW + MOST_N
_BUCKETS = _HASHES + WINDOW


@helper
def bucket_row(shape, pruned, pruned_mask, bucket_id):
    """Return the input row of a hash bucket, or -1 if pruning left none."""
    if at(shape, N_PRUNED) < 0:
        return at(shape, N_WORDS) + bucket_id
    if at(shape, N_PRUNED) == 0:
        return np.int64(-1)
    slot = pruned_slot(bucket_id, pruned_mask)
    while at(pruned, 2 * slot) >= 0:
        if at(pruned, 2 * slot) == bucket_id:
            return at(shape, N_WORDS) + np.int64(at(pruned, 2 * slot + 1))
        slot = (slot + 1) & pruned_mask
    return np.int64(-1)


@helper
def _wrapped(text, p, e, j):
    """Byte j of "<" + word + ">"."""
    if j == 0:
        return np.uint8(60)
    return at(text, p + j - 1) if j <= e - p else np.uint8(62)


@helper
def _add_buckets(file, shape, pruned, pruned_mask, matrix, waiting, n_waiting, sums, first):
    """Add the rows of the buckets in `waiting`, which is overwritten; how many there were."""
    dim = at(shape, DIM)
    if at(shape, N_PRUNED) > 0:
        for k in range(n_waiting):
            prefetch(pruned, 2 * pruned_slot(at(waiting, k), pruned_mask))
    n_rows = 0
    for k in range(n_waiting):
        row = bucket_row(shape, pruned, pruned_mask, at(waiting, k))
        if row >= 0:
            if at(matrix, QUANTISED) == 0:
                prefetch(file, at(matrix, DATA) + 4 * dim * row)
                prefetch(file, at(matrix, DATA) + 4 * dim * (row + 1) - 1)
            put(waiting, n_rows, row)
            n_rows += 1
    for k in range(n_rows):
        add_row(file, matrix, dim, at(waiting, k), sums, first)
    return n_rows


@helper
def _hash_window(text, p, e, begin, n_here, shape, hashed):
    """Hash the n-grams that begin at begin, ... begin + n_here - 1 of "<word>" to buckets, by length."""
    maxn, least = at(shape, MAXN), max(at(shape, MINN), 1)
    size = e - p + 2
    n_codes = min(n_here + maxn - 1, size - begin)
    for k in range(n_codes):
        put(hashed, k, np.uint32(_wrapped(text, p, e, begin + k)))
    for k in range(n_codes, n_here + maxn - 1):
        put(hashed, k, np.uint32(0))
    for k in range(n_here):
        put(hashed, _HASHES + k, FNV_START)
    n_buckets = np.float64(at(shape, BUCKET))
    share = 1.0 / n_buckets
    for n in range(1, maxn + 1):
        for k in range(n_here):
            h = np.uint32(at(hashed, _HASHES + k)) ^ np.uint32(at(hashed, k + n - 1))
            put(hashed, _HASHES + k, np.uint32(np.uint32(h) * FNV_PRIME))
        if n >= least:
            to = _BUCKETS + (n - least) * WINDOW
            for k in range(n_here):
                # h % bucket: a division of whole numbers has no vector form.
                h_ = np.float64(at(hashed, _HASHES + k))
                rest = h_ - np.floor(h_ * share) * n_buckets
                rest = rest + n_buckets if rest < 0.0 else rest
                rest = rest - n_buckets if rest >= n_buckets else rest
                put(hashed, to + k, np.uint32(rest))


@helper
def _add_plain(text, p, e, file, shape, pruned, pruned_mask, kept, kept_mask, matrix, waiting, hashed, sums, first):
    """Add the n-gram rows for ASCII words and n-grams of up to MOST_N."""
    maxn, least = at(shape, MAXN), max(at(shape, MINN), 1)
    size = e - p + 2
    filtered = at(shape, N_PRUNED) > 0
    n_rows = 0
    n_waiting = 0
    begin = 0
    while begin < size:
        n_here = min(WINDOW, size - begin)
        _hash_window(text, p, e, begin, n_here, shape, hashed)
        for k in range(n_here):
            i = begin + k
            for n in range(least, min(maxn, size - i) + 1):
                bucket_id = np.int64(at(hashed, _BUCKETS + (n - least) * WINDOW + k))
                put(waiting, n_waiting, bucket_id)
                counts = np.int64(not (n == 1 and (i == 0 or i + 1 == size)))
                n_waiting += counts & kept_bit(kept, kept_mask, bucket_id) if filtered else counts
            if n_waiting >= N_WAITING:
                n_rows += _add_buckets(file, shape, pruned, pruned_mask, matrix, waiting, n_waiting, sums, first)
                n_waiting = 0
        begin += WINDOW
    return n_rows + _add_buckets(file, shape, pruned, pruned_mask, matrix, waiting, n_waiting, sums, first)


@helper
def _add_any(text, p, e, file, shape, pruned, pruned_mask, matrix, waiting, sums, first):
    """Character by character."""
    minn, maxn = at(shape, MINN), at(shape, MAXN)
    bucket = np.uint32(at(shape, BUCKET))
    size = e - p + 2
    n_rows = 0
    n_waiting = 0
    for i in range(size):
        if _wrapped(text, p, e, i) & 0xC0 == 0x80:
            continue
        h = FNV_START
        j = i
        n = 1
        while j < size and n <= maxn:
            h = fnv(h, _wrapped(text, p, e, j))
            j += 1
            while j < size and _wrapped(text, p, e, j) & 0xC0 == 0x80:
                h = fnv(h, _wrapped(text, p, e, j))
                j += 1
            if n >= minn and not (n == 1 and (i == 0 or j == size)):
                put(waiting, n_waiting, np.int64(np.uint32(h % bucket)))
                n_waiting += 1
                if n_waiting == N_WAITING:
                    n_rows += _add_buckets(file, shape, pruned, pruned_mask, matrix, waiting, n_waiting, sums, first)
                    n_waiting = 0
            n += 1
    return n_rows + _add_buckets(file, shape, pruned, pruned_mask, matrix, waiting, n_waiting, sums, first)


@helper
def add_ngrams(text, p, e, file, shape, pruned, pruned_mask, kept, kept_mask, matrix, waiting, hashed, sums, first):
    """Add the rows of the character n-grams of "<word>" for the word text[p:e); how many there were."""
    if at(shape, N_PRUNED) == 0:
        return 0
    high = 0
    for k in range(p, e):
        high |= np.int64(at(text, k))
    if high < 128 and at(shape, MAXN) <= MOST_N:
        return _add_plain(
            text, p, e, file, shape, pruned, pruned_mask, kept, kept_mask, matrix, waiting, hashed, sums, first
        )
    return _add_any(text, p, e, file, shape, pruned, pruned_mask, matrix, waiting, sums, first)
