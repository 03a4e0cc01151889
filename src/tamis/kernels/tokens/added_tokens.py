"""Find added tokens ("<|endoftext|>") in texts: leftmost first, of those the longest; and texts that need NFC.

Tokens are grouped by their first two bytes. A table over all pairs of bytes says where a group may begin; blocks of 64
bytes without any of the first bytes are passed at once. Memory: 256 KiB, and 20 bytes for each part of a text. Time:
O(bytes).
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.language import types
from tamis.kernels.language.intrinsics import at, lowest_bit, mask_eq, mask_ge, pointer, put
from tamis.kernels.language.jit import kernel
from tamis.kernels.language.types import I32_IN, I32_OUT, I64_IN, I64_OUT, U8_IN, U8_OUT
from tamis.kernels.text._unicode import decode, flags_of
from tamis.kernels.tokens.byte_bpe import CharClasses, Segments

_NO_BITS = np.uint64(0)
_MAX_FIRST = 8  # different first bytes that blocks are compared with; of more, each byte is looked at


@kernel(
    types.int64(
        *(U8_IN, I64_IN, I64_IN, I32_IN, U8_IN, I32_IN, I32_IN, I32_IN, I64_IN, U8_IN, I32_IN),
        *(I64_OUT, I64_OUT, I32_OUT, I64_OUT),
    )
)
def _find(
    data, starts, ends, out_of_in, firsts_in, pairs_in, group_first_in, group_end_in, token_ends_in, token_bytes_in,
    token_ids_in, segment_starts, segment_ends, segment_ids, rows,
):  # fmt: skip
    """Return how many segments there are; beyond the room for them they are counted, not written.

    Segments of parts that are tokens already (`out_of` at least 0) are passed on.
    """
    source, firsts, pairs, out_of = pointer(data), pointer(firsts_in), pointer(pairs_in), pointer(out_of_in)
    group_first, group_end = pointer(group_first_in), pointer(group_end_in)
    token_ends, token_bytes, token_ids = pointer(token_ends_in), pointer(token_bytes_in), pointer(token_ids_in)
    size = np.int64(data.size)
    room = np.int64(segment_starts.size)
    n_first = np.int64(firsts_in.size)
    n = np.int64(0)
    for row in range(starts.size):
        p = begin = np.int64(at(starts, row))
        e = np.int64(at(ends, row))
        known = at(out_of, row)
        if known >= 0:
            if n < room:
                put(segment_starts, n, begin)
                put(segment_ends, n, e)
                put(segment_ids, n, known)
                put(rows, n, row)
            n += 1
            continue
        while p < e:
            if n_first <= _MAX_FIRST and p + 64 <= size:
                mask = _NO_BITS
                for k in range(n_first):
                    mask |= mask_eq(source, p, at(firsts, k))
                if mask == _NO_BITS:
                    p += 64
                    continue
                p += lowest_bit(mask)
                if p >= e:
                    break
            c = np.int64(at(source, p))
            group = np.int64(at(pairs, c << 8))
            if p + 1 < e:
                group = np.int64(at(pairs, (c << 8) | np.int64(at(source, p + 1))))
            length = np.int64(0)
            token = np.int32(0)
            if group >= 0:
                for k in range(np.int64(at(group_first, group)), np.int64(at(group_end, group))):
                    at_token = np.int64(at(token_ends, k))
                    n_bytes = np.int64(at(token_ends, k + 1)) - at_token
                    if p + n_bytes <= e:
                        i = np.int64(0)
                        while i < n_bytes and at(source, p + i) == at(token_bytes, at_token + i):
                            i += 1
                        if i == n_bytes:
                            length = n_bytes
                            token = at(token_ids, k)
                            break
            if length == 0:
                p += 1
                continue
            if p > begin:
                if n < room:
                    put(segment_starts, n, begin)
                    put(segment_ends, n, p)
                    put(segment_ids, n, np.int32(-1))
                    put(rows, n, row)
                n += 1
            if n < room:
                put(segment_starts, n, p)
                put(segment_ends, n, p + length)
                put(segment_ids, n, token)
                put(rows, n, row)
            n += 1
            p += length
            begin = p
        if begin < e:
            if n < room:
                put(segment_starts, n, begin)
                put(segment_ends, n, e)
                put(segment_ids, n, np.int32(-1))
                put(rows, n, row)
            n += 1
    return n


@kernel(types.void(U8_IN, I64_IN, I64_IN, U8_IN, U8_IN, U8_OUT))
def _have_flag(data, starts, ends, pages_in, flags_in, out):
    """Put 1 for each text with a character that has the flag 1, or two in a row with the flag 2."""
    source, pages, flags = pointer(data), pointer(pages_in), pointer(flags_in)
    size = np.int64(data.size)
    for row in range(starts.size):
        p = np.int64(at(starts, row))
        e = np.int64(at(ends, row))
        has = 0
        behind = np.int64(-1)  # the last character with the flag 2
        while p < e and has == 0:
            if p + 64 <= size:
                mask = mask_ge(source, p, 128)
                if mask == _NO_BITS:
                    p += 64
                    continue
                p += lowest_bit(mask)
                if p >= e:
                    break
            code, after = decode(source, p, e)
            found = flags_of(pages, flags, code)
            if found & 1 != 0 or (found & 2 != 0 and behind == p):
                has = 1
            if found & 2 != 0:
                behind = after
            p = after
        put(out, row, has)


def have_flag(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64], classes: CharClasses
) -> NDArray[np.bool_]:
    """Return for each text whether a character has the flag 1, or two in a row the flag 2; those of ASCII have none."""
    out = np.empty(starts.size, np.uint8)
    _have_flag(data, starts, ends, classes.pages, classes.flags, out)
    return out.view(np.bool_)


class AddedTokens:
    """Tokens that are found in texts before these are cut into words."""

    def __init__(self, tokens: Mapping[bytes, int]) -> None:
        if b"" in tokens:
            raise ValueError("AddedTokens: an empty token is in every text")
        # A token of one byte is in the group of every pair that begins with it; the longest of a group come first.
        self._pairs = np.full(1 << 16, -1, np.int32)
        groups: dict[tuple[bytes, ...], int] = {}
        by_pair: dict[bytes, list[bytes]] = {}
        singles = {token for token in tokens if len(token) == 1}
        for token in tokens:
            heads = [token[:2]] if len(token) > 1 else [token + bytes([second]) for second in range(256)]
            for head in heads:
                by_pair.setdefault(head, []).append(token)
        for single in singles:  # also next to the tokens of two bytes or more that begin with it
            for head, own in by_pair.items():
                if head[:1] == single and single not in own:
                    own.append(single)
        ordered: list[bytes] = []
        first, end = [], []
        for head, own in by_pair.items():
            group = tuple(sorted(own, key=len, reverse=True))
            if group not in groups:
                groups[group] = len(groups)
                first.append(len(ordered))
                ordered += group
                end.append(len(ordered))
            self._pairs[head[0] << 8 | head[1]] = groups[group]
        self._group_first, self._group_end = np.array(first, np.int32), np.array(end, np.int32)
        self._ends = np.cumsum([0, *map(len, ordered)]).astype(np.int64)
        self._bytes = np.frombuffer(b"".join(ordered), np.uint8)
        self._ids = np.array([tokens[token] for token in ordered], np.int32)
        self._firsts = np.array(sorted({token[0] for token in tokens}), np.uint8)
        self.n_tokens = len(tokens)

    def find(self, data: NDArray[np.uint8], segments: Segments) -> tuple[Segments, NDArray[np.int64]]:
        """Cut segments at these tokens; return the parts, and which segment each is of."""
        room = segments.starts.size + 64
        while True:
            starts, ends = np.empty(room, np.int64), np.empty(room, np.int64)
            ids, rows = np.empty(room, np.int32), np.empty(room, np.int64)
            n = _find(
                *(data, segments.starts, segments.ends, segments.token_ids, self._firsts, self._pairs),
                *(self._group_first, self._group_end, self._ends, self._bytes, self._ids, starts, ends, ids, rows),
            )
            if n <= room:
                return Segments(starts[:n], ends[:n], ids[:n]), rows[:n]
            room = n
