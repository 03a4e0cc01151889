"""Words and their token ids: a hash table with open addressing, in two arrays that kernels read and Python grows.

`pool` (int32) holds one record after the other: [bytes of the word, number of ids, uses, ids ..., the word's bytes,
zeros up to a multiple of 8]. `slots` (uint64, a power of two, at most half full) hold the upper half of a word's hash
and, below it, the position of its record plus one; 0 is free. A word is found by its hash and compared byte by byte,
so it is never mistaken for another. Hashes are salted, so that no text can be made whose words all share one slot.
Memory: 12 bytes, 4 for each id, the word itself, and 16 to 32 bytes of slots per word. Time: O(length of a word).
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import os
import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.language import types
from tamis.kernels.language.intrinsics import at, load_u64, pointer, put, rotl64
from tamis.kernels.language.jit import helper, kernel
from tamis.kernels.language.types import I32_IN, I32_OUT, I64_OUT, U8_IN, U64_IN, U64_OUT

HEAD = 3  # numbers of a record before its ids
N_BYTES, N_IDS, USES = 0, 1, 2
USED_AGAIN = 2  # the first use of a word is the one that it was asked for
_FIRST_SLOTS, _FIRST_POOL = 1 << 10, 1 << 12
_P1, _P2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_ONE, _ZERO, _32, _29 = np.uint64(1), np.uint64(0), np.uint64(32), np.uint64(29)
_LOWER = np.uint64(0xFFFFFFFF)


@helper
def eight_bytes(source, size, p, n):
    """Return the first bytes of source[p:p + n), at most eight, as a number, zero-padded.

    `size`: that of the whole source.
    """
    if n >= 8:
        return load_u64(source, p)
    if p + 8 <= size:
        return load_u64(source, p) & ((_ONE << np.uint64(8 * n)) - _ONE)
    word = _ZERO
    for k in range(n):
        word |= np.uint64(at(source, p + k)) << np.uint64(8 * k)
    return word


@helper
def word_hash(source, size, p, n, salt):
    """Return the hash of the bytes source[p:p + n), n > 0."""
    h = salt ^ (np.uint64(n) * _P2)
    while n > 0:
        h = (h ^ eight_bytes(source, size, p, n)) * _P1
        h = rotl64(h, _29) ^ salt
        p += 8
        n -= 8
    h = (h ^ (h >> _32)) * _P2
    return h ^ (h >> _29)


@helper
def find_word(source, size, p, n, salt, slots, n_slots, pool, pool_bytes):
    """Return the position at which the record of the word source[p:p + n) begins, or -1 if there is none."""
    h = word_hash(source, size, p, n, salt)
    mask = np.uint64(n_slots - 1)
    i = h & mask
    while True:
        slot = at(slots, np.int64(i))
        if slot == _ZERO:
            return np.int64(-1)
        if (slot >> _32) == (h >> _32):
            record = np.int64(slot & _LOWER) - 1
            if at(pool, record + N_BYTES) == n:
                place = 4 * (record + HEAD + np.int64(at(pool, record + N_IDS)))
                k = 0
                while k < n and eight_bytes(source, size, p + k, n - k) == load_u64(pool_bytes, place + k):
                    k += 8
                if k >= n:
                    return record
        i = (i + _ONE) & mask


@helper
def record_size(pool, record):
    """Return how many numbers a record occupies."""
    return HEAD + np.int64(at(pool, record + N_IDS)) + 2 * ((np.int64(at(pool, record + N_BYTES)) + 7) // 8)


@kernel(types.void(I32_IN, U8_IN, types.int64, types.int64, types.uint64, U64_OUT))
def _enter(pool_in, bytes_in, record, end, salt, slots_out):
    """Insert the records from `record` to `end` into slots that have room for them.

    Their words must not be present yet.
    """
    pool, pool_bytes, slots = pointer(pool_in), pointer(bytes_in), pointer(slots_out)
    mask = np.uint64(slots_out.size - 1)
    while record < end:
        place = 4 * (record + HEAD + np.int64(at(pool, record + N_IDS)))
        h = word_hash(pool_bytes, bytes_in.size, place, np.int64(at(pool, record + N_BYTES)), salt)
        i = h & mask
        while at(slots, np.int64(i)) != _ZERO:
            i = (i + _ONE) & mask
        put(slots, np.int64(i), ((h >> _32) << _32) | np.uint64(record + 1))
        record += record_size(pool, record)


@kernel(types.void(I32_OUT, types.int64, I64_OUT))
def _keep_used(pool_out, end, out):
    """Move the records of words that were used again to the front, as if they were new; out: (their end, how many)."""
    pool = pointer(pool_out)
    record = to = n_words = 0
    while record < end:
        size = record_size(pool, record)
        if at(pool, record + USES) >= USED_AGAIN:
            for k in range(size):
                put(pool, to + k, at(pool, record + k))
            put(pool, to + USES, 0)
            to += size
            n_words += 1
        record += size
    put(out, 0, to)
    put(out, 1, n_words)


@kernel(types.int64(U8_IN, types.uint64, U64_IN, I32_IN, U8_IN))
def _find(word, salt, slots, pool, pool_bytes):
    """Return the position of the record of one word, or -1."""
    return find_word(
        pointer(word), word.size, 0, word.size, salt, pointer(slots), slots.size, pointer(pool), pointer(pool_bytes)
    )


class WordTable:
    """The table as Python sees it. Words are bytes, none of them empty."""

    def __init__(self, salt: np.uint64 | None = None) -> None:
        self.salt = np.uint64(int.from_bytes(os.urandom(8), "little")) if salt is None else salt
        self.clear()

    def clear(self) -> None:
        self.slots: NDArray[np.uint64] = np.zeros(_FIRST_SLOTS, np.uint64)
        self._set_pool(np.zeros(_FIRST_POOL, np.int32))
        self.n_words = self.end = 0

    def add(self, words: Sequence[bytes], ids: Sequence[Sequence[int]]) -> None:
        """Add words that are not there yet (see `ids_of`), each once."""
        if not words:
            return
        parts: list[bytes] = []
        for word, own in zip(words, ids, strict=True):
            parts += [struct.pack(f"={HEAD + len(own)}i", len(word), len(own), 0, *own), word, bytes(-len(word) % 8)]
        new = np.frombuffer(b"".join(parts), np.int32)
        begin, end = self.end, self.end + new.size
        if end > self.pool.size:
            larger = np.zeros(max(self.pool.size + self.pool.size // 2, end), np.int32)
            larger[:begin] = self.pool[:begin]
            self._set_pool(larger)
        self.pool[begin:end] = new
        self.end, self.n_words = end, self.n_words + len(words)
        if 2 * self.n_words > self.slots.size:
            self.slots = np.zeros(1 << (2 * self.n_words).bit_length(), np.uint64)
            begin = 0
        _enter(self.pool, self.pool_bytes, begin, end, self.salt, self.slots)

    def forget(self, most: int) -> None:
        """Remove every word that was not used again since it was added, or since the last call.

        Removes all words if more than `most` would stay.
        """
        out = np.zeros(2, np.int64)
        _keep_used(self.pool, self.end, out)
        if int(out[1]) > most:
            self.clear()
            return
        self.end, self.n_words = int(out[0]), int(out[1])
        self._set_pool(self.pool[: max(_FIRST_POOL, 2 * self.end)].copy())
        self.slots = np.zeros(max(_FIRST_SLOTS, 1 << (2 * self.n_words).bit_length()), np.uint64)
        _enter(self.pool, self.pool_bytes, 0, self.end, self.salt, self.slots)

    def ids_of(self, word: bytes) -> list[int] | None:
        """Return the ids of a word, or None if it is not in the table."""
        record = int(_find(np.frombuffer(word, np.uint8), self.salt, self.slots, self.pool, self.pool_bytes))
        first = record + HEAD
        return None if record < 0 else self.pool[first : first + int(self.pool[record + N_IDS])].tolist()

    @property
    def n_bytes(self) -> int:
        """Memory that it takes."""
        return int(self.pool.nbytes + self.slots.nbytes)

    def _set_pool(self, pool: NDArray[np.int32]) -> None:
        self.pool, self.pool_bytes = pool, pool.view(np.uint8)
