"""fastText's dictionary: its entries in the file, and the tables that find a word or a pruned bucket.

Open addressing over the model's own hashes. A file may be made so that all keys fall together; filling counts its
steps and gives up, so that time is linear in the file whatever it holds. Memory: 8 bytes per entry at most half full.
Most n-grams of a text have no row in a pruned model: bits, 16 for each kept bucket, say so from a cache that the
table is too large for.
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from tamis.kernels.language import types
from tamis.kernels.language.intrinsics import at, put
from tamis.kernels.language.jit import helper, kernel
from tamis.kernels.language.types import I32_IN, I32_OUT, I64_IN, I64_OUT, U8_IN, U32_IN, U32_OUT, U64_OUT
from tamis.kernels.records._json_escape import same_bytes

# Positions in `shape`, which describes a model to kernels.
DIM, N_WORDS, N_LABELS, BUCKET, MINN, MAXN, WORD_NGRAMS, LOSS, N_PRUNED = range(9)
FNV_START, FNV_PRIME = np.uint32(2166136261), np.uint32(16777619)
MIX = np.uint64(0x9E3779B97F4A7C15)


@helper
def fnv(h, byte):
    """Compute one step of fastText's FNV-1a, which sign-extends bytes."""
    return np.uint32(np.uint32(h ^ np.uint32(np.int32(np.int8(byte)))) * FNV_PRIME)


@kernel(types.int64(U8_IN, types.int64, types.int64, I64_OUT, I32_OUT, I64_OUT, I32_OUT, U32_OUT))
def scan_dictionary(file, begin, n_entries, begins, lengths, counts, kinds, hashes):
    """Read `n_entries` of (name, NUL, int64 count, int8 kind) from `begin` on; where they end, or -1 past the file."""
    p = begin
    size = file.size
    for entry in range(n_entries):
        first = p
        h = FNV_START
        while p < size and at(file, p) != 0:
            h = fnv(h, at(file, p))
            p += 1
        if p + 10 > size:
            return -1
        count = np.uint64(0)
        for k in range(8):
            count |= np.uint64(at(file, p + 1 + k)) << np.uint64(8 * k)
        put(begins, entry, first)
        put(lengths, entry, np.int32(min(p - first, 2147483647)))
        put(counts, entry, np.int64(count))
        put(kinds, entry, np.int32(at(file, p + 9)))
        put(hashes, entry, h)
        p += 10
    return p


@kernel(types.boolean(U8_IN, I64_IN, I32_IN, U32_IN, I32_OUT))
def fill_words(file, begins, lengths, hashes, slots):
    """Open addressing by hash, -1 for free; a repeated word gets the later id. False if the hashes are rigged."""
    mask = np.int64(slots.size - 1)
    n_left = np.int64(1000) + 64 * np.int64(begins.size)
    for entry in range(begins.size):
        slot = np.int64(at(hashes, entry)) & mask
        while at(slots, slot) >= 0:
            other = np.int64(at(slots, slot))
            if at(hashes, other) == at(hashes, entry) and at(lengths, other) == at(lengths, entry):
                n_left -= np.int64(at(lengths, entry)) >> 6
                if same_bytes(file, at(begins, other), file, at(begins, entry), np.int64(at(lengths, entry))):
                    break
            n_left -= 1
            if n_left < 0:
                return False
            slot = (slot + 1) & mask
        put(slots, slot, np.int32(entry))
    return True


@helper
def word_id(text, p, e, h, file, begins, lengths, hashes, slots, mask):
    slot = np.int64(h) & mask
    while at(slots, slot) >= 0:
        entry = np.int64(at(slots, slot))
        same = at(hashes, entry) == h and np.int64(at(lengths, entry)) == e - p
        if same and same_bytes(text, p, file, at(begins, entry), e - p):
            return entry
        slot = (slot + 1) & mask
    return np.int64(-1)


@helper
def pruned_slot(bucket_id, mask):
    return np.int64(((np.uint64(bucket_id) * MIX) >> np.uint64(32)) & np.uint64(mask))


@kernel(types.boolean(I32_IN, I32_OUT))
def fill_pruned(pairs, slots):
    """Enter (kept bucket, row) pairs into a table of such pairs, -1 for free. False if the buckets are rigged."""
    mask = np.int64(slots.size // 2 - 1)
    n_left = np.int64(1000) + 32 * np.int64(pairs.size)
    for k in range(pairs.size // 2):
        key = at(pairs, 2 * k)
        slot = pruned_slot(key, mask)
        while at(slots, 2 * slot) >= 0 and at(slots, 2 * slot) != key:
            n_left -= 1
            if n_left < 0:
                return False
            slot = (slot + 1) & mask
        put(slots, 2 * slot, key)
        put(slots, 2 * slot + 1, at(pairs, 2 * k + 1))
    return True


@kernel(types.void(I32_IN, U64_OUT))
def fill_kept(pairs, kept):
    """Set a bit for the low bits of each kept bucket's number.

    `kept`: zeros, as many as make the number of their bits a power of two.
    """
    mask = np.int64(64 * kept.size - 1)
    for k in range(pairs.size // 2):
        bit = np.int64(at(pairs, 2 * k)) & mask
        put(kept, bit >> 6, at(kept, bit >> 6) | np.uint64(1) << np.uint64(bit & 63))


@helper
def kept_bit(kept, mask, bucket_id):
    """Return 0 where the bucket was not kept; 1 where it was, and for a few others."""
    bit = bucket_id & mask
    return np.int64(at(kept, bit >> 6) >> np.uint64(bit & 63) & np.uint64(1))
