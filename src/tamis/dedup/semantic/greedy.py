"""Which documents of one cluster go: in the order of their ranks, those that resemble one that stays.

Blocked products, exact.

Memory: a block of candidates and blocks of kept vectors; kept ones beyond `room_rows` are read again from the file.
Every product has the same shape whatever the memory, so decisions do not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tamis.dedup.semantic.products import CPU, Products

KEPT_BLOCK = 4096
Floats = NDArray[np.float32]
Read = Callable[[NDArray[np.int64]], Any]


def duplicates_in_cluster(
    order: NDArray[np.int64], read: Read, threshold: float, block: int, room_rows: int, products: Products = CPU
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Return (row, row of the kept one it resembles most, similarity) of the documents to remove.

    `order`: rows, best first; `read(rows)`: vectors.
    """
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
