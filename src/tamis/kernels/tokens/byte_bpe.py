"""Token ids by byte-pair encoding: cut texts into words (_pretokens.py), look these up, merge the new ones.

Of bytes, as GPT-2 does, or of characters with bytes for those that are no token, as SentencePiece does.

Two caches of a fixed size hold the ids of words. A word of up to 15 bytes with up to four ids is its own key: two
uint64 [bytes, length in the last], then its ids; a set of two such slots is one cache line. A word of up to 56 bytes
with up to 16 ids takes a slot of 128 bytes in the other. Cache lines of the words of a window are asked for before the
first is looked up. Nothing is mistaken for another word, and what is in a cache
changes how long a text takes, never its ids. Other words of up to 15 bytes may be a token (a table of slots like those
of the cache); what is left is merged each time (_merging.py). Words of ASCII are found 64 bytes at a time
(_windows.py).

Memory: the caches (8 MiB), the tables of the vocabulary (per merge 34 to 68 bytes of slots of pairs, per token 64 to
128 of slots of words), 44 bytes for each byte of the longest word (at most _WINDOW), and 4 per id. Time: O(bytes),
O(n log n) of a long word.
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.language import types
from tamis.kernels.language.intrinsics import at, load_u64, lowest_bit, pointer, prefetch, put, store_u64
from tamis.kernels.language.jit import helper, kernel
from tamis.kernels.language.types import I32_IN, I32_OUT, I64_IN, I64_OUT, U8_IN, U8_OUT, U32_OUT, U64_IN, U64_OUT
from tamis.kernels.tokens._merging import (
    HEAP_PER_BYTE,
    MAX_RANK,
    NO_PAIR,
    SHORT,
    bytes_as_symbols,
    chars_as_symbols,
    filter_place,
    merge_long,
    merge_short,
    pair_hash,
    pair_mask,
    pair_slot,
    settled,
)
from tamis.kernels.tokens._pretokens import (
    CUT,
    FAMILY,
    JOINED,
    JOINED_IN_PART,
    PIECES,
    joint_place,
    plain_end,
    word_end,
)
from tamis.kernels.tokens._windows import is_ascii, window_ends
from tamis.kernels.tokens.word_table import HEAD, WordTable, find_word

MAX_ID = 1 << 28  # the upper bits of a fourth id count the ids
_KEY_BYTES, _KEY_IDS = 15, 4
_SETS_BITS = 16
_LONG_BYTES, _LONG_IDS, _LONG_BITS = 56, 16, 15
_SLOT, _SET, _LONG_SLOT = 4, 8, 16  # uint64 of each
_JOINT_BITS = 32  # of the table of joints for each of them
_DONE, _NO_ROOM, _NO_SCRATCH, _NO_SEAM = 0, 1, 2, 3
_WINDOW = 1 << 16  # bytes of a word that are merged at once
_NO_WINDOW = 1 << 62
# Of `state`: where to continue; what is lacking; and of a word that is merged in windows where it ends (or -1) and
# begins, how many ids it has so far, and which id comes next.
_SEGMENT, _POSITION, _N_OUT, _LACKING, _WORD_END, _WORD, _WORD_IDS, _NEXT_ID = range(8)
_CHUNK = 1 << 19  # ids that there is room for at once
_P1, _P2, _P3 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93), np.uint64(0xA0761D6478BD642F)
_ONE, _32, _56, _60 = np.uint64(1), np.uint64(32), np.uint64(56), np.uint64(60)
_IDS = np.uint64(0x0FFFFFFFFFFFFFFF)
_NO_BITS = np.uint64(0)


@helper
def _short_hash(low, high, salt):
    h = ((low ^ salt) * _P1) ^ (high * _P2)
    return (h ^ (h >> _32)) * _P3


@helper
def _ask_for_words(source, p, size, ends, masks, salt, cache):
    """Ask for the cache lines of all words of a window, whose ends are given."""
    start = p
    while ends != _NO_BITS:
        q = start + lowest_bit(ends)
        ends &= ends - _ONE
        n = q - p
        if n <= _KEY_BYTES and p + 16 <= size:
            low = load_u64(source, p) & at(masks, 2 * n)
            high = (load_u64(source, p + 8) & at(masks, 2 * n + 1)) | (np.uint64(n) << _56)
            prefetch(cache, np.int64(_short_hash(low, high, salt) >> np.uint64(64 - _SETS_BITS)) * _SET)
        p = q


@helper
def _find_token(tokens, mask, low, high, h):
    """Return the id of the token that a word of up to 15 bytes is, or -1."""
    i = h & mask
    while True:
        k = np.int64(i) * _SLOT
        found = at(tokens, k + 1)
        if found == _NO_BITS:
            return np.int64(-1)
        if found == high and at(tokens, k) == low:
            return np.int64(at(tokens, k + 2))
        i = (i + _ONE) & mask


@kernel(
    types.int64(
        *(U8_IN, I64_IN, I64_IN, I32_IN, I64_IN, U8_IN, U8_IN),
        *(I32_IN, I32_IN, U8_IN, U8_IN, I32_IN, U64_IN, U64_IN, types.uint64, U64_IN),
        *(types.boolean, U64_IN, types.boolean, U64_IN, I32_IN, U8_IN),
        *(U64_OUT, U64_OUT, I32_OUT, I32_OUT, I32_OUT, U64_OUT, U64_OUT, U32_OUT),
        *(types.int64, U8_OUT, I64_OUT, I64_OUT),
    )
)
def _encode(
    data, starts, ends, segment_ids, numbers_in, pages_in, flags_in,
    char_pages_in, char_ids_in, cuts_in, joints_in, byte_ids_in, byte_pairs_in, pairs_in, salt, masks_in,
    by_windows, tokens_in, whole_words, slots_in, pool_in, pool_bytes_in,
    cache_out, long_cache_out, ids_out, before_out, behind_out, values_out, heap_out, keys_out,
    window, out_bytes, n_ids_out, state,
):  # fmt: skip
    """Encode segments from state[_SEGMENT] on, from a position in it, or -1."""
    source, pages, flags, numbers = pointer(data), pointer(pages_in), pointer(flags_in), pointer(numbers_in)
    char_pages, char_ids, cuts = pointer(char_pages_in), pointer(char_ids_in), pointer(cuts_in)
    joints, joint_mask = pointer(joints_in), np.uint64(8 * joints_in.size - 1)
    byte_ids, byte_pairs, pairs = pointer(byte_ids_in), pointer(byte_pairs_in), pointer(pairs_in)
    of_chars = at(numbers, FAMILY) == PIECES
    masks, slots, pool, pool_bytes = pointer(masks_in), pointer(slots_in), pointer(pool_in), pointer(pool_bytes_in)
    tokens, token_mask = pointer(tokens_in), np.uint64(tokens_in.size // _SLOT - 1)
    cache, long_cache = pointer(cache_out), pointer(long_cache_out)
    ids, before, behind = pointer(ids_out), pointer(before_out), pointer(behind_out)
    values, heap, keys, out = pointer(values_out), pointer(heap_out), pointer(keys_out), pointer(out_bytes)
    size = np.int64(data.size)
    room = np.int64(out_bytes.size // 4)
    scratch = np.int64(ids_out.size)
    mask = pair_mask(pairs_in.size)
    segment = np.int64(at(state, _SEGMENT))
    p = np.int64(at(state, _POSITION))
    n_out = np.int64(at(state, _N_OUT))
    word_end_ = np.int64(at(state, _WORD_END))
    while segment < starts.size:
        if n_out + 4 > room:
            put(state, _SEGMENT, segment)
            put(state, _POSITION, p)
            put(state, _N_OUT, n_out)
            put(state, _LACKING, 4)
            return _NO_ROOM
        added = np.int64(at(segment_ids, segment))
        if added >= 0:
            store_u64(out, 4 * n_out, np.uint64(added))
            n_out += 1
            put(n_ids_out, segment, 1)
            segment += 1
            p = np.int64(-1)
            continue
        if p < 0:
            p = np.int64(at(starts, segment))
        e = np.int64(at(ends, segment))
        n_before = n_out
        window_start, window_mask = p, _NO_BITS
        while p < e:
            if n_out + 4 > room:
                put(n_ids_out, segment, at(n_ids_out, segment) + n_out - n_before)
                put(state, _SEGMENT, segment)
                put(state, _POSITION, p)
                put(state, _N_OUT, n_out)
                put(state, _LACKING, 4)
                return _NO_ROOM
            q = word_end_
            if window_mask == _NO_BITS and q < 0 and p + 64 <= size:
                if by_windows:
                    window_start = p
                    window_mask = window_ends(source, p, e, cuts, joints, joint_mask, numbers)
                    _ask_for_words(source, p, size, window_mask, masks, salt, cache)
                else:
                    q = plain_end(source, p, e, flags, numbers)
            if window_mask != _NO_BITS:
                q = window_start + lowest_bit(window_mask)
                window_mask &= window_mask - _ONE
            elif q < 0:
                q = word_end(source, p, e, pages, flags, cuts, joints, joint_mask, numbers)
            n = q - p
            short = n <= _KEY_BYTES and p + 16 <= size and word_end_ < 0
            low = high = h = _NO_BITS
            i = np.int64(0)
            if short:
                low = load_u64(source, p) & at(masks, 2 * n)
                high = (load_u64(source, p + 8) & at(masks, 2 * n + 1)) | (np.uint64(n) << _56)
                h = _short_hash(low, high, salt)
                i = np.int64(h >> np.uint64(64 - _SETS_BITS)) * _SET
                first_differs = (at(cache, i) ^ low) | (at(cache, i + 1) ^ high)
                second_differs = (at(cache, i + _SLOT) ^ low) | (at(cache, i + _SLOT + 1) ^ high)
                if first_differs == _NO_BITS or second_differs == _NO_BITS:  # one jump for both: it is rarely wrong
                    hit = i if first_differs == _NO_BITS else i + _SLOT
                    last = at(cache, hit + 3)
                    store_u64(out, 4 * n_out, at(cache, hit + 2))
                    store_u64(out, 4 * n_out + 8, last & _IDS)
                    n_out += np.int64(last >> _60)
                    p = q
                    continue
            m = np.int64(0)
            if short:
                token = _find_token(tokens, token_mask, low, high, h)
                if token >= 0:
                    put(ids, 0, np.int32(token))
                    m = np.int64(1)
            long_i = np.int64(-1)
            header = _NO_BITS
            if m == 0 and n <= _LONG_BYTES and p + _LONG_BYTES <= size and word_end_ < 0:
                g = salt ^ np.uint64(n)
                n_words = (n + 7) // 8
                for k in range(n_words):
                    word = load_u64(source, p + 8 * k)
                    if k == n_words - 1:
                        word &= at(masks, 2 * (n - 8 * k))
                    g = ((g ^ word) * _P1) ^ (g >> _32)
                g = (g ^ (g >> _32)) * _P2
                header = (g << np.uint64(16)) | (np.uint64(n) << np.uint64(8))
                long_i = np.int64(g >> np.uint64(64 - _LONG_BITS)) * _LONG_SLOT
                stored = at(long_cache, long_i)
                if (stored ^ header) & ~np.uint64(255) == _NO_BITS and stored != _NO_BITS:
                    n_equal = np.int64(0)
                    while n_equal < n_words:
                        word = load_u64(source, p + 8 * n_equal)
                        if n_equal == n_words - 1:
                            word &= at(masks, 2 * (n - 8 * n_equal))
                        if word != at(long_cache, long_i + 1 + n_equal):
                            break
                        n_equal += 1
                    if n_equal == n_words:
                        m = np.int64(stored & np.uint64(255))
                        if n_out + m + 1 > room:
                            put(n_ids_out, segment, at(n_ids_out, segment) + n_out - n_before)
                            put(state, _SEGMENT, segment)
                            put(state, _POSITION, p)
                            put(state, _N_OUT, n_out)
                            put(state, _LACKING, m + 1)
                            return _NO_ROOM
                        for k in range((m + 1) // 2):
                            store_u64(out, 4 * n_out + 8 * k, at(long_cache, long_i + 8 + k))
                        n_out += m
                        p = q
                        continue
            # A word that is not in a cache.
            if whole_words and not short and word_end_ < 0:
                record = find_word(source, size, p, n, salt, slots, slots_in.size, pool, pool_bytes)
                if record >= 0:
                    put(ids, 0, at(pool, record + HEAD))
                    m = np.int64(1)
            if m == 0:
                if n > window:
                    n = window
                    while n > 1 and np.int64(at(source, p + n)) & 0xC0 == 0x80:
                        n -= 1
                if n > scratch:
                    put(n_ids_out, segment, at(n_ids_out, segment) + n_out - n_before)
                    put(state, _SEGMENT, segment)
                    put(state, _POSITION, p)
                    put(state, _N_OUT, n_out)
                    put(state, _LACKING, n)
                    return _NO_SCRATCH
                if of_chars:
                    m = chars_as_symbols(source, p, n, char_pages, char_ids, byte_ids, pairs, mask, salt, ids, values)
                else:
                    m = bytes_as_symbols(source, p, n, byte_ids, byte_pairs, ids, values)
                if m <= SHORT and p + n >= q:
                    m = merge_short(m, pairs, mask, salt, ids, values, keys, behind)
                else:
                    m = merge_long(m, pairs, mask, salt, ids, values, before, behind, heap)
                if word_end_ >= 0 or p + n < q:
                    n_tokens = m
                    n_bytes = n
                    if p + n < q:
                        n_tokens, n_bytes = settled(
                            source, p, p + n - n // 8, of_chars, char_pages, char_ids, before, m
                        )
                    if n_tokens == 0 or (word_end_ >= 0 and np.int64(at(ids, 0)) != at(state, _NEXT_ID)):
                        put(n_ids_out, segment, at(n_ids_out, segment) + n_out - n_before)
                        put(state, _SEGMENT, segment)
                        put(state, _POSITION, p)
                        put(state, _N_OUT, n_out)
                        return _NO_SEAM
                    if n_out + n_tokens + 4 > room:
                        put(n_ids_out, segment, at(n_ids_out, segment) + n_out - n_before)
                        put(state, _SEGMENT, segment)
                        put(state, _POSITION, p)
                        put(state, _N_OUT, n_out)
                        put(state, _LACKING, n_tokens + 4)
                        return _NO_ROOM
                    if word_end_ < 0:
                        put(state, _WORD, p)
                        put(state, _WORD_IDS, 0)
                    for k in range(n_tokens):
                        store_u64(out, 4 * (n_out + k), np.uint64(at(ids, k)))
                    n_out += n_tokens
                    put(state, _WORD_IDS, at(state, _WORD_IDS) + n_tokens)
                    p += n_bytes
                    word_end_ = q if p < q else np.int64(-1)
                    put(state, _WORD_END, word_end_)
                    if p < q:
                        put(state, _NEXT_ID, np.int64(at(ids, n_tokens)))
                    continue
            if n_out + m + 4 > room:
                put(n_ids_out, segment, at(n_ids_out, segment) + n_out - n_before)
                put(state, _SEGMENT, segment)
                put(state, _POSITION, p)
                put(state, _N_OUT, n_out)
                put(state, _LACKING, m + 4)
                return _NO_ROOM
            for k in range(m):
                store_u64(out, 4 * (n_out + k), np.uint64(at(ids, k)))
            n_out += m
            p = q
            if short and m <= _KEY_IDS:
                for k in range(_SLOT):
                    put(cache, i + _SLOT + k, at(cache, i + k))
                first = second = _NO_BITS
                first = np.uint64(at(ids, 0))
                if m > 1:
                    first |= np.uint64(at(ids, 1)) << _32
                if m > 2:
                    second = np.uint64(at(ids, 2))
                if m > 3:
                    second |= np.uint64(at(ids, 3)) << _32
                put(cache, i, low)
                put(cache, i + 1, high)
                put(cache, i + 2, first)
                put(cache, i + 3, second | (np.uint64(m) << _60))
            elif long_i >= 0 and m <= _LONG_IDS:
                put(long_cache, long_i, header | np.uint64(m))
                n_words = (n + 7) // 8
                begin = q - n
                for k in range(n_words):
                    word = load_u64(source, begin + 8 * k)
                    if k == n_words - 1:
                        word &= at(masks, 2 * (n - 8 * k))
                    put(long_cache, long_i + 1 + k, word)
                for k in range((m + 1) // 2):
                    both = np.uint64(at(ids, 2 * k))
                    if 2 * k + 1 < m:
                        both |= np.uint64(at(ids, 2 * k + 1)) << _32
                    put(long_cache, long_i + 8 + k, both)
        put(n_ids_out, segment, at(n_ids_out, segment) + n_out - n_before)
        segment += 1
        p = np.int64(-1)
    put(state, _SEGMENT, segment)
    put(state, _POSITION, p)
    put(state, _N_OUT, n_out)
    return _DONE


@kernel(types.void(U64_IN, U64_IN, types.uint64, U64_OUT))
def _fill_pairs(keys, values, salt, out):
    """Insert pairs into slots that have room for them; of equal keys the last value counts."""
    mask = pair_mask(out.size)
    for k in range(keys.size):
        key = at(keys, k)
        h = pair_hash(key, salt)
        place, bit = filter_place(h, mask)
        put(out, place, at(out, place) | (_ONE << bit))
        i = pair_slot(h, mask)
        while at(out, np.int64(i << _ONE)) != NO_PAIR and at(out, np.int64(i << _ONE)) != key:
            i = (i + _ONE) & mask
        put(out, np.int64(i << _ONE), key)
        put(out, np.int64((i << _ONE) | _ONE), at(values, k))


@kernel(types.void(U64_IN, U8_OUT))
def _fill_joints(keys, out):
    """Set the bits of all keys."""
    mask = np.uint64(8 * out.size - 1)
    for k in range(keys.size):
        place = joint_place(at(keys, k), mask)
        i = np.int64(place >> np.uint64(3))
        put(out, i, at(out, i) | np.uint8(np.uint64(1) << (place & np.uint64(7))))


@kernel(types.void(U8_IN, I64_IN, I64_IN, I32_IN, U64_IN, types.uint64, U64_OUT))
def _fill_tokens(data, starts, ends, ids, masks, salt, out):
    """Insert the tokens data[starts[k]:ends[k]) of 1 to 15 bytes into slots that have room for them.

    16 bytes from the start of each must be readable.
    """
    mask = np.uint64(out.size // _SLOT - 1)
    for row in range(starts.size):
        p = np.int64(at(starts, row))
        n = np.int64(at(ends, row)) - p
        low = load_u64(data, p) & at(masks, 2 * n)
        high = (load_u64(data, p + 8) & at(masks, 2 * n + 1)) | (np.uint64(n) << _56)
        i = _short_hash(low, high, salt) & mask
        while at(out, np.int64(i) * _SLOT + 1) != _NO_BITS:
            i = (i + _ONE) & mask
        k = np.int64(i) * _SLOT
        put(out, k, low)
        put(out, k + 1, high)
        put(out, k + 2, np.uint64(at(ids, row)))


def _byte_masks() -> NDArray[np.uint64]:
    """Return for 0 to 15 bytes which bits of the first and of the second eight belong to a word."""
    wide = [(1 << (8 * n)) - 1 for n in range(16)]
    return np.array([part for mask in wide for part in (mask & (2**64 - 1), mask >> 64)], np.uint64)


_MASKS = _byte_masks()


class CharClasses(NamedTuple):
    """Flags of all code points: flags[256 * pages[code >> 8] + (code & 255)]; the first page comes first."""

    pages: NDArray[np.uint8]
    flags: NDArray[np.uint8]


class CharIds(NamedTuple):
    """Ids of characters: ids[256 * pages[code >> 8] + (code & 255)], -1 for those that are no token.

    cuts[a << 8 | b] says whether merges reach across the bytes a and b, the last and the first of two characters:
    CUT, JOINED, or JOINED_IN_PART where that depends on one more byte on either side, as the bits of `joints` tell.
    """

    pages: NDArray[np.int32]
    ids: NDArray[np.int32]
    cuts: NDArray[np.uint8]
    joints: NDArray[np.uint8]

    @classmethod
    def make(cls, ids: Mapping[int, int], edges: Collection[tuple[bytes, bytes]]) -> CharIds:
        """Build from ids by code point, and the last two and the first two bytes of the sides of all merges."""
        pages = np.zeros(0x1100, np.int32)
        numbers = {page: k for k, page in enumerate(sorted({code >> 8 for code in ids}), 1)}
        table = np.full((len(numbers) + 1) << 8, -1, np.int32)
        for page, number in numbers.items():
            pages[page] = number
        for code, token in ids.items():
            table[(numbers[code >> 8] << 8) | (code & 255)] = token
        cuts = np.full(1 << 16, CUT, np.uint8)
        for left, right in edges:
            cuts[left[-1] << 8 | right[0]] = JOINED_IN_PART
        for left, right in edges:
            if len(left) == len(right) == 1:
                cuts[left[0] << 8 | right[0]] = JOINED
        joints = np.zeros(1 << max(3, (_JOINT_BITS * len(edges)).bit_length() - 3), np.uint8)
        keys = [left.rjust(2, b"\0") + right.ljust(2, b"\0") for left, right in edges]
        _fill_joints(np.frombuffer(b"".join(keys), ">u4").astype(np.uint64), joints)
        return cls(pages, table, cuts, joints)


@dataclass(frozen=True)
class BpeTables:
    """A vocabulary as the kernel reads it. Made once (`make`); processes that are forked later share it.

    numbers: of the expression that cuts texts into words (_pretokens.py). tokens: words of up to 15 bytes that are a
    token, in slots like those of the cache. words: longer ones, where these are taken as they are.
    """

    numbers: NDArray[np.int64]
    classes: CharClasses
    chars: CharIds
    byte_ids: NDArray[np.int32]
    byte_pairs: NDArray[np.uint64]
    pairs: NDArray[np.uint64]
    salt: np.uint64
    by_windows: bool
    tokens: NDArray[np.uint64]
    words: WordTable | None

    @classmethod
    def make(
        cls,
        numbers: NDArray[np.int64],
        classes: CharClasses,
        byte_ids: NDArray[np.int32],
        merges: NDArray[np.int64],
        tokens: Mapping[bytes, int],
        *,
        ignore_merges: bool,
        chars: CharIds | None = None,
    ) -> BpeTables:
        """Build from merges: rows of (left id, right id, rank, merged id), of which the last of equal pairs counts.

        `tokens`: the bytes of all tokens; `ignore_merges`: a word that is one is taken as it is, also where merges do
        not make it. `chars`: of a tokenizer whose words begin as characters.
        """
        left, right, rank, new = (np.ascontiguousarray(column).astype(np.uint64) for column in merges.T)
        if merges.size and (merges.min() < 0 or merges.max() >= MAX_ID or merges[:, 2].max() >= MAX_RANK):
            raise ValueError(f"BpeTables: ids must be from 0 to {MAX_ID - 1:,}, and ranks to {MAX_RANK - 1:,}")
        salt = np.uint64(int.from_bytes(os.urandom(8), "little"))
        n_slots = 1 << max(4, (2 * len(merges)).bit_length())
        pairs = np.full(2 * n_slots + n_slots // 8, NO_PAIR, np.uint64)
        pairs[2 * n_slots :] = 0  # the filter
        keys, values = (left << _32) | right, (rank << _32) | new
        _fill_pairs(keys, values, salt, pairs)
        byte_pairs = np.full(1 << 16, NO_PAIR, np.uint64)
        byte_of = np.full(1 + max(int(byte_ids.max()), int(merges[:, :2].max(initial=0))), -1, np.int64)
        byte_of[byte_ids] = np.arange(byte_ids.size)
        first, second = byte_of[merges[:, 0]], byte_of[merges[:, 1]]
        is_bytes = (first >= 0) & (second >= 0)
        byte_pairs[(first << 8 | second)[is_bytes]] = values[is_bytes]  # of equal pairs the last, as in the table
        words = None
        if ignore_merges:
            words = WordTable(salt)
            long = {token: i for token, i in tokens.items() if len(token) > _KEY_BYTES}
            words.add(list(long), [[i] for i in long.values()])
        by_windows = bool(numbers[FAMILY] == PIECES) or is_ascii(classes.flags)
        made = cls(
            *(numbers, classes, chars or CharIds.make({}, ()), byte_ids, byte_pairs, pairs, salt, by_windows),
            *(np.zeros(_SLOT, np.uint64), words),
        )
        return made._with_tokens(tokens, ignore_merges)

    def _with_tokens(self, tokens: Mapping[bytes, int], ignore_merges: bool) -> BpeTables:
        """Return the same tables that also find short words which are tokens, if merges make them or are ignored."""
        short = {token: i for token, i in tokens.items() if 0 < len(token) <= _KEY_BYTES}
        if not short:
            return self
        ids = np.fromiter(short.values(), np.int32, len(short))
        ends = np.cumsum(np.fromiter(map(len, short), np.int64, len(short)))
        starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
        data = np.frombuffer(b"".join(short) + bytes(64), np.uint8)
        if not ignore_merges:
            found, n_ids = BpeEncoder(self).encode(data, Segments(starts, ends, np.full(ids.size, -1, np.int32)))
            is_made = n_ids == 1
            is_made[is_made] = found[(np.cumsum(n_ids) - 1)[is_made]] == ids[is_made]
            starts, ends, ids = starts[is_made], ends[is_made], ids[is_made]
        slots = np.zeros(_SLOT << (2 * ids.size).bit_length(), np.uint64)
        _fill_tokens(data, starts, ends, ids, _MASKS, self.salt, slots)
        return replace(self, tokens=slots)

    @property
    def n_bytes(self) -> int:
        """Memory that it takes."""
        words = self.words.n_bytes if self.words else 0
        return int(self.pairs.nbytes + self.byte_pairs.nbytes + self.tokens.nbytes) + words


class Segments(NamedTuple):
    """Parts of texts: data[starts[i]:ends[i]) where token_ids[i] is -1, else that token."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    token_ids: NDArray[np.int32]


class BpeEncoder:
    """Encodes texts with the tables of a vocabulary. Holds the caches; only one thread may use it at a time."""

    def __init__(self, tables: BpeTables, window: int = _WINDOW) -> None:
        self.tables, self._window = tables, window
        self._cache = _aligned(_SET << _SETS_BITS)
        self._long_cache = _aligned(_LONG_SLOT << _LONG_BITS)
        self._words = tables.words or WordTable()
        self._keys = np.empty(SHORT, np.uint32)
        self._set_scratch(1 << 10)

    def _set_scratch(self, n: int) -> None:
        self._ids, self._before, self._behind = (np.empty(n, np.int32) for _ in range(3))
        self._values, self._heap = np.empty(n, np.uint64), np.empty(HEAP_PER_BYTE * n, np.uint64)

    def encode(self, data: NDArray[np.uint8], segments: Segments) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the ids of all segments, one after the other, and how many each has."""
        n_ids = np.zeros(segments.starts.size, np.int64)
        chunks = self._chunks(data, segments, n_ids)
        return (chunks[0] if len(chunks) == 1 else np.concatenate(chunks)), n_ids

    def _chunks(self, data: NDArray[np.uint8], segments: Segments, n_ids: NDArray[np.int64]) -> list[NDArray[np.int32]]:
        tables, words = self.tables, self._words
        total = int((segments.ends - segments.starts).sum()) + segments.starts.size
        state = np.array([0, -1, 0, 0, -1, 0, 0, 0], np.int64)
        room, window = min(total + 8, _CHUNK), self._window
        out = np.empty(room, np.int32)
        chunks: list[NDArray[np.int32]] = []
        while True:
            status = _encode(
                *(data, segments.starts, segments.ends, segments.token_ids),
                *(tables.numbers, tables.classes.pages, tables.classes.flags),
                *(tables.chars.pages, tables.chars.ids, tables.chars.cuts, tables.chars.joints),
                *(tables.byte_ids, tables.byte_pairs, tables.pairs, tables.salt, _MASKS),
                *(
                    tables.by_windows,
                    tables.tokens,
                    tables.words is not None,
                    words.slots,
                    words.pool,
                    words.pool_bytes,
                ),
                *(
                    self._cache,
                    self._long_cache,
                    self._ids,
                    self._before,
                    self._behind,
                    self._values,
                    self._heap,
                    self._keys,
                ),
                *(window, out.view(np.uint8), n_ids, state),
            )
            if status == _NO_SCRATCH:
                self._set_scratch(int(state[_LACKING]))
                continue
            chunks.append(out[: int(state[_N_OUT])])
            if status == _DONE:
                break
            if status == _NO_SEAM:  # of a text that is made for it
                window = _NO_WINDOW
                self._forget_word(chunks, n_ids, state)
            out = np.empty(max(room, int(state[_LACKING])), np.int32)
            state[_N_OUT] = 0
        if self._ids.size > _CHUNK:
            self._set_scratch(1 << 10)
        return chunks

    def _forget_word(self, chunks: list[NDArray[np.int32]], n_ids: NDArray[np.int64], state: NDArray[np.int64]) -> None:
        """Remove the ids of a word that is encoded in windows, so that it is encoded again from its beginning."""
        if state[_WORD_END] < 0:
            return
        n = int(state[_WORD_IDS])
        n_ids[state[_SEGMENT]] -= n
        while n > 0:
            last = chunks.pop()
            if n < last.size:
                chunks.append(last[: last.size - n])
            n -= last.size
        state[_POSITION], state[_WORD_END] = state[_WORD], -1


def _aligned(n: int) -> NDArray[np.uint64]:
    """Return zeros that begin with a cache line."""
    memory = np.zeros(n + 8, np.uint64)
    begin = (-memory.ctypes.data % 64) // 8
    return memory[begin : begin + n]


def merge_rows(rows: Sequence[tuple[int, int, int, int]]) -> NDArray[np.int64]:
    """Return merges as an array for `BpeTables.make`."""
    return np.array(rows, np.int64).reshape(-1, 4)
