"""Decide which documents of one cluster are removed: in order of rank, those that resemble one that stays.

Exact products: of blocks, or, on a GPU, of a whole cluster that is not large, as every call to a GPU takes time.

Memory: a block of candidates and blocks of kept vectors; kept ones beyond `room_rows` are read again from the file.
Every product has the same shape whatever the memory, so decisions do not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tamis.dedup.semantic.products import CPU, OnTorch, Products

KEPT_BLOCK = 4096
WHOLE_ROWS = 8192  # of a cluster that is compared in one product; their product takes 270 MB of a device
MAX_PAIRS = 1 << 22  # of such a cluster, which are copied to the host
Floats = NDArray[np.float32]
Read = Callable[[NDArray[np.int64]], Any]
Found = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]


def duplicates_in_cluster(
    order: NDArray[np.int64], read: Read, threshold: float, block: int, room_rows: int, products: Products = CPU
) -> Found:
    """Return (row, row of the kept one it resembles most, similarity) of the documents to remove.

    The kept one is of the same block only where none before the block is like it. `order`: rows, best first;
    `read(rows)`: vectors.
    """
    if isinstance(products, OnTorch) and len(order) <= WHOLE_ROWS:
        pairs = products.some_pairs_inside(read(order), threshold, MAX_PAIRS)
        if pairs is not None:
            gone, partner, likeness = _decided(len(order), *pairs, block)
            return order[gone], order[partner], likeness
    return _by_blocks(order, read, threshold, block, room_rows, products)


def _decided(
    n: int, row: NDArray[np.int64], earlier: NDArray[np.int64], cosine: NDArray[np.float32], block: int
) -> Found:
    """Return what `duplicates_in_cluster` does, from all pairs of `n` rows, ordered by rows and earlier rows."""
    stays = _staying(n, row, earlier)
    used = ~stays[row] & stays[earlier]
    row, earlier, cosine = row[used], earlier[used], cosine[used]
    is_before = earlier // block < row // block
    has_before = np.zeros(n, bool)
    has_before[row[is_before]] = True
    used = is_before | ~has_before[row]
    row, earlier, cosine = row[used], earlier[used], cosine[used]
    starts = np.flatnonzero(np.diff(row, prepend=-1))
    top = np.repeat(np.maximum.reduceat(cosine, starts), np.diff(starts, append=len(row))) if len(row) else cosine
    indices = np.flatnonzero(cosine == top)
    gone, first = np.unique(row[indices], return_index=True)
    return gone, earlier[indices[first]], cosine[indices[first]]


def _staying(n: int, row: NDArray[np.int64], earlier: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which of `n` rows stay: a row goes if an earlier one that it is paired with stays.

    Every turn decides all rows whose earlier ones are decided.
    """
    stays, is_open = np.ones(n, bool), np.zeros(n, bool)
    is_open[row] = True
    while len(row):
        settled = ~is_open[earlier]
        gone = row[settled & stays[earlier]]
        stays[gone] = is_open[gone] = False
        matters = is_open[row] & ~settled
        row, earlier = row[matters], earlier[matters]
        is_open[:] = False
        is_open[row] = True
    return stays


def _by_blocks(
    order: NDArray[np.int64], read: Read, threshold: float, block: int, room_rows: int, products: Products
) -> Found:
    survivors = _Survivors(read, room_rows, products)
    gone: list[NDArray[np.int64]] = []
    partner: list[NDArray[np.int64]] = []
    likeness: list[NDArray[np.float32]] = []
    for start in range(0, len(order), block):
        rows = order[start : start + block]
        x = read(rows)
        best = np.full(len(rows), -np.inf, np.float32)
        of = np.full(len(rows), -1, np.int64)
        for numbers, vectors in survivors.blocks():
            at, top = products.best(x, vectors)
            better = top > best
            best[better], of[better] = top[better], numbers[at[better]]
        stays = best < threshold
        pending = np.flatnonzero(stays)
        if len(pending) > 1:
            new = x if len(pending) == len(rows) else products.take(x, pending)
            row, earlier, cosine = products.pairs_inside(new, threshold)
            cuts = np.flatnonzero(np.diff(row)) + 1
            for pairs in np.split(np.arange(len(row)), cuts) if len(row) else ():
                alive = pairs[stays[pending[earlier[pairs]]]]
                if len(alive):
                    closest = alive[cosine[alive].argmax()]
                    i = pending[row[closest]]
                    stays[i] = False
                    best[i], of[i] = cosine[closest], rows[pending[earlier[closest]]]
        gone.append(rows[~stays])
        partner.append(of[~stays])
        likeness.append(best[~stays])
        survivors.add(rows[stays], x if stays.all() else products.take(x, stays))
    return np.concatenate(gone), np.concatenate(partner), np.concatenate(likeness)


class _Survivors:
    """Vectors that stay, in blocks of KEPT_BLOCK; those that do not fit are read again when they are needed."""

    def __init__(self, read: Read, room_rows: int, products: Products) -> None:
        self._read, self._room, self._products = read, max(KEPT_BLOCK, room_rows), products
        self._numbers: list[NDArray[np.int64]] = []
        self._vectors: list[Any] = []
        self._open_rows = np.empty(0, np.int64)
        self._open: Any = None

    def add(self, rows: NDArray[np.int64], vectors: Any) -> None:
        self._open = vectors if self._open is None else self._products.join([self._open, vectors])
        self._open_rows = np.concatenate([self._open_rows, rows])
        while len(self._open_rows) >= KEPT_BLOCK:
            self._numbers.append(self._open_rows[:KEPT_BLOCK])
            fits = (len(self._numbers) + 1) * KEPT_BLOCK <= self._room
            whole, rest = (self._products.join([part]) for part in (self._open[:KEPT_BLOCK], self._open[KEPT_BLOCK:]))
            self._vectors.append(self._products.hold(whole) if fits else None)
            self._open_rows, self._open = self._open_rows[KEPT_BLOCK:], rest

    def blocks(self) -> Iterator[tuple[NDArray[np.int64], Any]]:
        for numbers, vectors in zip(self._numbers, self._vectors, strict=True):
            yield numbers, vectors if vectors is not None else self._read(numbers)
        if len(self._open_rows) and self._open is not None:
            yield self._open_rows, self._open
