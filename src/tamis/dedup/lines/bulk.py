"""Units normalised a window at a time by array operations.

Covers units of ASCII characters, and for "casefold" most others.

The arrays of one byte per byte of a window are kept from window to window: fresh ones would be given back to the system
and asked for again each time, which took a quarter of the time. Units that are to lose characters inside are copied one
after the other into one buffer, with a byte between them that UTF-8 never holds, and shortened together.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tamis.dedup.lines.units import positions
from tamis.kernels.records.json_text import copy_spans

Array = np.ndarray[Any, Any]
BETWEEN, GONE = 0xFF, 0xFE  # bytes that UTF-8 never holds
STOP = bytes([BETWEEN])
_SPACES = bytes([*range(9, 14), *range(28, 33)])  # what str.split() splits ASCII at
_ALNUM = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_KEPT_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 17


class BulkUnits:
    """Normalises the units of one window after the other; keeps the room it works in."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self._room: list[Array] = []

    def _bytes(self, n: int, k: int) -> Array:
        """Return array number k of the buffer, n bytes long."""
        if n > _KEPT_BYTES:
            return np.empty(n, np.uint8)
        while len(self._room) <= k:
            self._room.append(np.empty(_KEPT_BYTES, np.uint8))
        return self._room[k][:n]

    def load(self, window: Array, start: Array, end: Array, stop: Array) -> Array:
        """Take a window and its units; which of these hold characters that are not for this class."""
        self._window, self._start, self._end, self._low = window, start, end, window
        self._n_more = np.zeros(len(start), np.int64)  # bytes of a unit beyond one per character
        other = np.zeros(len(start), bool)
        if self.mode == "casefold":
            self._low = self._lower(window)
        self._shorter = other.copy()
        if len(window) and window.max() >= 128:
            mask = np.greater_equal(window, 0xC2, out=self._bytes(len(window), 0).view(bool))
            few = np.count_nonzero(mask) < _BLOCK_BYTES // 4
            size = len(window) if few else _BLOCK_BYTES  # where there are many, arrays of a block stay in the cache
            for first in range(0, len(window), size):
                lead = positions(mask[first : first + size]) + first
                if len(lead) and self.mode == "casefold":
                    self._fold(lead, stop, other)
                elif len(lead):
                    other[np.searchsorted(stop, lead, side="right")] = True
        if self.mode == "casefold":
            self._find_runs()
        return other

    def _fold(self, lead: Array, stop: Array, other: Array) -> None:
        """Rewrite the characters that begin at `lead`.

        Marks the units that hold some for which the table does not do.
        """
        table = folds()
        code, n_bytes = _decoded(self._window, lead)
        facts = table.facts[code]
        low, high = (int(k) for k in np.searchsorted(stop, lead[[0, -1]], side="right"))
        if len(lead) < high - low:
            unit = np.searchsorted(stop, lead, side="right")
            self._n_more += np.bincount(unit, facts & 3, len(stop)).astype(np.int64)
            other[unit[(facts & OTHER) != 0]] = True
            self._shorter[unit[(facts & SHORTER) != 0]] = True
        else:  # more characters than units: sums over the characters of each
            units, ends = slice(low, high + 1), np.append(np.searchsorted(lead, stop[low:high]), len(lead))
            self._n_more[units] += _sums(facts & 3, ends)
            other[units] |= _sums((facts & OTHER) != 0, ends) > 0
            self._shorter[units] |= _sums((facts & SHORTER) != 0, ends) > 0
        indices = np.flatnonzero(facts & CHANGED)
        lead, code = lead[indices], code[indices]
        self._low[lead] = table.new[0][code]
        self._low[lead + 1] = table.new[1][code]
        three = np.flatnonzero(n_bytes[indices] == 3)
        self._low[lead[three] + 2] = table.new[2][code[three]]

    def normalized(self, which: Array) -> Iterator[tuple[Array, Array, Array, Array, Array]]:
        """Yield (buffer, start, end, characters, positions) of the units after normalisation, in one or two parts."""
        start, end, n_more = self._start[which], self._end[which], self._n_more[which]
        if self.mode in ("none", "nfc") or not len(which):
            yield self._window, start, end, end - start, which
        elif self.mode == "strip":
            start, end = stripped(self._window, start, end)
            yield self._window, start, end, end - start, which
        elif self.mode == "casefold":
            start, end, some = self._trimmed(start, end)
            some |= self._shorter[which]
            yield self._low, start[~some], end[~some], (end - start - n_more)[~some], which[~some]
            if some.any():
                new, start, end = collapsed(packed(self._low, start[some], end[some], BETWEEN), True)
                yield new, start, end, end - start - n_more[some], which[some]
        else:
            rewritten = packed(self._window, start, end, BETWEEN).tobytes().translate(*table(self.mode))
            new, start, end = collapsed(np.frombuffer(rewritten, np.uint8), False)
            yield new, start, end, end - start, which

    def _lower(self, window: Array) -> Array:
        """Return the window with ASCII in lower case and every ASCII whitespace character as a space."""
        n = len(window)
        low, t = self._bytes(n, 1), self._bytes(n, 2)
        mark, more = self._bytes(n, 0).view(bool), self._bytes(n, 3).view(bool)
        np.less(np.subtract(window, 65, out=t), 26, out=mark)
        np.add(window, np.multiply(mark.view(np.uint8), 32, out=t), out=low)
        np.less(np.subtract(window, 9, out=t), 5, out=mark)
        np.less(np.subtract(window, 28, out=t), 4, out=more)
        np.logical_or(mark, more, out=mark)
        np.multiply(np.bitwise_xor(low, 32, out=t), mark.view(np.uint8), out=t)
        return np.bitwise_xor(low, t, out=low)

    def _find_runs(self) -> None:
        """Note the runs of at least two spaces: [first, after)."""
        n = len(self._low)
        mark, twice = self._bytes(n, 0).view(bool), self._bytes(n + 1, 3).view(bool)
        np.equal(self._low, 32, out=mark)
        twice[0] = twice[n] = False
        np.logical_and(mark[1:], mark[:-1], out=twice[1:n])
        edges = positions(np.not_equal(twice[1:], twice[:-1], out=self._bytes(n, 2).view(bool)))
        self._first, self._after = edges[::2], edges[1::2] + 1

    def _trimmed(self, start: Array, end: Array) -> tuple[Array, Array, Array]:
        """Return (start, end) without spaces around the units, and which of them hold a run of spaces inside."""
        first, after = self._first, self._after
        low = self._low
        full = end > start
        leading = np.flatnonzero(full & (low[np.minimum(start, len(low) - 1)] == 32))
        trailing = np.flatnonzero(full & (low[end - full] == 32))
        begin, stop = start.copy(), end.copy()
        run = np.searchsorted(after, start[leading], side="right")
        inside = np.append(first, len(low))[run] <= start[leading]
        begin[leading] = np.where(inside, np.append(after, 0)[run], start[leading] + 1)
        run = np.searchsorted(first, end[trailing] - 1, side="right") - 1
        inside = np.append(after, 0)[run] >= end[trailing]
        inside &= run >= 0
        stop[trailing] = np.where(inside, np.append(first, 0)[run], end[trailing] - 1)
        begin = np.minimum(begin, end)
        stop = np.maximum(stop, begin)
        some = np.searchsorted(first, begin) < np.searchsorted(first, stop)
        return begin, stop, some & (stop > begin)


def _sums(values: Array, ends: Array) -> Array:
    """Return the sums of values[ends[k - 1]:ends[k]]."""
    return np.diff(np.append(0, np.cumsum(values, dtype=np.int64))[ends], prepend=0)


def _decoded(window: Array, lead: Array) -> tuple[Array, Array]:
    """Decode the characters that begin at `lead` as (code points, bytes); 0 for those of four bytes."""
    b0 = window[lead]
    b1 = np.take(window[1:], lead, mode="clip") & 63
    b2 = np.take(window[2:], lead, mode="clip") & 63 if len(window) > 2 else b1
    n_bytes = np.uint8(2) + (b0 >= 0xE0) + (b0 >= 0xF0)
    wide = b0.astype(np.int32)
    code = np.where(n_bytes == 2, (wide & 31) << 6 | b1, ((wide & 15) << 6 | b1) << 6 | b2)
    code[n_bytes == 4] = 0
    return code, n_bytes


# Of a character: what case-folding takes beyond one byte per character (0 to 2), and these.
CHANGED, SHORTER, OTHER = 4, 8, 16


class Folds(NamedTuple):
    """By code point, for characters of two or three bytes: what normal form KC and case-folding make of them."""

    new: tuple[Array, Array, Array]  # its bytes, filled up with GONE
    facts: Array


@lru_cache(maxsize=1)
def folds() -> Folds:
    """Return the table of foldings; a text of its characters and ASCII can be rewritten character by character.

    None of these characters joins another in normal form KC (marks and the parts of Hangul syllables do),
    before or after folding; and a folding that does not take more bytes than before can be written in place.
    """
    new = tuple(np.full(0x10000, GONE, np.uint8) for _ in range(3))
    facts = np.full(0x10000, OTHER, np.uint8)
    for code in [*range(0x80, 0xD7B0), *range(0xE000, 0x10000)]:
        c = chr(code)
        normal = unicodedata.normalize("NFKC", c)
        size, fold = len(c.encode()), normal.casefold().encode()
        if len(fold) > size or not fold or not (_stands_alone(c) and all(map(_stands_alone, normal))):
            continue
        if normal.isspace():
            fold = b" "
        facts[code] = len(fold) - len(fold.decode()) | CHANGED * (fold != c.encode()) | SHORTER * (len(fold) < size)
        for k, byte in enumerate(fold):
            new[k][code] = byte
    return Folds((new[0], new[1], new[2]), facts)


def _stands_alone(c: str) -> bool:
    jamo = "\u1100" <= c < "\u1200" or "\ua960" <= c < "\ua980" or "\ud7b0" <= c < "\ud800"
    return not jamo and unicodedata.category(c)[0] != "M" and not unicodedata.combining(c)


@lru_cache(maxsize=1)
def _is_space() -> Array:
    space = np.zeros(256, bool)
    space[list(_SPACES)] = True
    return space


def stripped(data: Array, start: Array, end: Array) -> tuple[Array, Array]:
    """Return the bounds of ASCII units without whitespace around them.

    One step per whitespace character, over the units that have one more.
    """
    space = _is_space()
    start, end = start.copy(), end.copy()
    for edge, at, step in ((start, 0, 1), (end, -1, -1)):
        pending = np.flatnonzero(end > start)
        for _ in range(64):
            pending = pending[space[data[edge[pending] + at]]]
            edge[pending] += step
            pending = pending[end[pending] > start[pending]]
            if not len(pending):
                break
        for k in pending.tolist():  # more than that: rare, and perhaps very many
            line = data[int(start[k]) : int(end[k])].tobytes()
            text = line.lstrip(_SPACES) if step > 0 else line.rstrip(_SPACES)
            edge[k] += step * (len(line) - len(text))
    return start, end


@lru_cache(maxsize=8)
def table(mode: str) -> tuple[bytes, bytes]:
    """Return (the byte that each byte becomes, bytes to delete)."""
    lookup = bytearray(bytes(range(256)).lower())  # ASCII letters only
    if mode == "casefold":
        for c in _SPACES:
            lookup[c] = 32
        return bytes(lookup), b""
    if mode == "ccnet":
        for c in b"0123456789":
            lookup[c] = 48
    return bytes(lookup), bytes(c for c in range(128) if c not in _ALNUM)


def packed(data: Array, start: Array, end: Array, between: int) -> Array:
    """Concatenate the units (at least one), each followed by the byte `between`."""
    size = end - start
    to = np.cumsum(size + 1) - size - 1
    buffer = np.empty(int(to[-1] + size[-1] + 1), np.uint8)
    copy_spans(data, start, size, buffer, to)
    buffer[to + size] = between
    return buffer


def collapsed(new: Array, spaces: bool) -> tuple[Array, Array, Array]:
    """Return (buffer, start, end) of the units, each followed by BETWEEN.

    With `spaces` every run of them made one, and none at the ends.
    """
    if spaces:
        gone = new == GONE
        if gone.any():
            new = new[~gone]
        space = new == 32
        again = space[1:] & (space[:-1] | (new[:-1] == BETWEEN))
        if again.any() or space[0]:
            new = new[np.concatenate([[not space[0]], ~again])]
    stops = np.flatnonzero(new == BETWEEN)
    begin = np.concatenate([[0], stops[:-1] + 1])
    if spaces:  # of the whitespace at the end one space is left
        stops = stops - ((stops > begin) & (new[np.maximum(stops - 1, 0)] == 32))
    return new, begin, stops
