"""Packing documents into sequences of one length. Pure: rows of token ids in, rows of equal length out.

`Concatenate` puts documents one after the other and cuts every `length` tokens: only the last sequence is padded.
`BestFit` keeps documents whole, but for those longer than a sequence: of each window of documents (a fixed number of
tokens, so that the result depends on their order alone) the longest are placed first, each into the fullest sequence
that has room; the rest of a sequence is padding. `document_starts` of a sequence begin with 0; padding begins one, too.
Memory: some 20 bytes for each token of the window.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from tamis.formats.tokens.files import Rows

Array = np.ndarray[Any, Any]
WINDOW_TOKENS = 1 << 20


class Packing(Protocol):
    """Documents go in, sequences come out; what is left at the end comes from `finish`."""

    n_padding: int

    def add(self, rows: Rows) -> Iterator[Rows]: ...

    def finish(self) -> Iterator[Rows]: ...


class Whole:
    """Documents as they are."""

    n_padding = 0

    def add(self, rows: Rows) -> Iterator[Rows]:
        yield rows

    def finish(self) -> Iterator[Rows]:
        return iter(())


class Concatenate:
    """Documents one after the other, cut every `length` tokens."""

    def __init__(self, length: int, pad: int) -> None:
        self._length, self._pad = length, pad
        self._ids: Array | None = None
        self._starts: Array = np.zeros(0, np.int64)
        self.n_padding = 0

    def add(self, rows: Rows) -> Iterator[Rows]:
        first = 0 if self._ids is None else len(self._ids)
        ids = rows.ids if self._ids is None else np.concatenate([self._ids, rows.ids])
        starts = np.concatenate([self._starts, rows.offsets[:-1] + first])
        n = len(ids) // self._length
        end = n * self._length
        if n:
            yield self._cut(ids[:end], starts[starts < end], n)
        self._ids, self._starts = ids[end:].copy(), starts[starts >= end] - end

    def _cut(self, ids: Array, starts: Array, n: int) -> Rows:
        begins = np.arange(n + 1, dtype=np.int64) * self._length
        every = np.union1d(starts, begins[:-1])
        return Rows(ids, begins, every % self._length, np.searchsorted(every, begins))

    def finish(self) -> Iterator[Rows]:
        if self._ids is None or not len(self._ids):
            return
        n = len(self._ids)
        self.n_padding = self._length - n
        ids = np.full(self._length, self._pad, self._ids.dtype)
        ids[:n] = self._ids
        yield self._cut(ids, np.append(self._starts, n), 1)
        self._ids = None


class BestFit:
    """Whole documents, each in the fullest sequence that has room for it."""

    def __init__(self, length: int, pad: int) -> None:
        self._length, self._pad = length, pad
        self._window = max(WINDOW_TOKENS, 16 * length)
        self._ids: list[Array] = []
        self._lengths: list[int] = []  # of pieces: documents, or parts of longer ones
        self._n_tokens = 0
        self.n_padding = 0

    def add(self, rows: Rows) -> Iterator[Rows]:
        offsets = rows.offsets.tolist()
        first = offsets[0]
        for a, b in pairwise(offsets):
            self._lengths += [min(self._length, b - p) for p in range(a, b, self._length)]
            self._n_tokens += b - a
            if self._n_tokens >= self._window:
                self._ids.append(rows.ids[first:b])
                first = b
                yield self._packed()
        # A copy: a view would keep all rows of a call until the window is full.
        self._ids.append(rows.ids[first : offsets[-1]].copy())

    def finish(self) -> Iterator[Rows]:
        if self._lengths:
            yield self._packed()

    def _packed(self) -> Rows:
        ids = np.concatenate(self._ids)
        lengths = np.array(self._lengths, np.int64)
        sequences = best_fit(self._lengths, self._length)
        targets = np.empty(len(lengths), np.int64)  # where each piece begins in the result
        starts: list[int] = []
        start_offsets = [0]
        for row, members in enumerate(sequences):
            p = 0
            for i in members:
                starts.append(p)
                targets[i] = row * self._length + p
                p += self._lengths[i]
            if p < self._length:
                starts.append(p)
                self.n_padding += self._length - p
            start_offsets.append(len(starts))
        out = np.full(len(sequences) * self._length, self._pad, ids.dtype)
        out[np.repeat(targets - (np.cumsum(lengths) - lengths), lengths) + np.arange(len(ids))] = ids
        self._ids, self._lengths, self._n_tokens = [], [], 0
        begins = np.arange(len(sequences) + 1, dtype=np.int64) * self._length
        return Rows(out, begins, np.array(starts, np.int64), np.array(start_offsets, np.int64))


def best_fit(lengths: list[int], capacity: int) -> list[list[int]]:
    """Assign items to bins, the longest first, each to the fullest bin that has room for it.

    Bins are in the order of the first item in each, and so are the items in a bin.

    >>> best_fit([3, 5, 4, 2, 1], 7)
    [[0, 2], [1, 3], [4]]
    """
    bins: list[list[int]] = []
    by_room: dict[int, list[int]] = {}
    rooms = 0  # bit k: a bin has room for k
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        n = lengths[i]
        fitting = rooms >> n
        if fitting:
            room = n + (fitting & -fitting).bit_length() - 1
            own = by_room[room]
            chosen = own.pop()
            if not own:
                rooms &= ~(1 << room)
        else:
            room, chosen = capacity, len(bins)
            bins.append([])
        bins[chosen].append(i)
        room -= n
        if room:
            by_room.setdefault(room, []).append(chosen)
            rooms |= 1 << room
    return sorted(sorted(members) for members in bins)
