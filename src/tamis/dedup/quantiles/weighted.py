"""Exact weighted quantiles of numbers that do not fit into memory.

The quantile of a share q is the smallest value that at least q of the weight does not exceed (numpy calls this method
inverted_cdf), so that equal numbers are always on the same side. Numbers are 32-bit keys in their order, read twice:
weights are added up by the upper half of the key, and then by the lower half within the cells that hold a quantile.
Memory: 0.5 MB for each cell that is counted at once; more cells than fit are counted in rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Chunks = Callable[[], Iterator[tuple[Array, Array, Array]]]
"""Yields (group, key, weight) of all numbers, some at a time; called once for each reading."""
NO_KEY = 0xFFFFFFFF
"""The key of NaN, which counts nowhere. No number has this key."""
_CELL = 1 << 16
_CELL_BYTES = _CELL * 8


def keys_of(numbers: Array) -> NDArray[np.uint32]:
    """Return 32-bit keys in the order of 32-bit floats; NO_KEY for NaN.

    >>> np.diff(keys_of(np.array([-1.5, -0.0, 0.0, 2.0])).astype(np.int64)).tolist()[1]
    0
    """
    bits = np.ascontiguousarray(np.asarray(numbers, np.float32) + np.float32(0)).view(np.uint32)
    top = np.uint32(1 << 31)
    keys = np.where(bits & top, ~bits, bits | top)
    keys[np.isnan(numbers)] = NO_KEY
    return keys


def numbers_of(keys: Array) -> NDArray[np.float32]:
    """Return the numbers of keys: the inverse of `keys_of`."""
    top = np.uint32(1 << 31)
    keys = np.asarray(keys, np.uint32)
    return np.where(keys & top, keys ^ top, ~keys).astype(np.uint32).view(np.float32)


def totals_of(chunks: Chunks, n_groups: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many numbers each group has, and their weight."""
    n, weights = np.zeros(n_groups, np.int64), np.zeros(n_groups, np.int64)
    for group, key, weight in chunks():
        mine = key != NO_KEY
        n += np.bincount(group[mine], minlength=n_groups)
        weights += _added(group[mine], weight[mine], n_groups)
    return n, weights


def smallest_reaching(chunks: Chunks, targets: NDArray[np.int64], room_bytes: int) -> NDArray[np.uint32]:
    """Return, for each group and each of its targets, the smallest key up to which the weight reaches the target.

    `targets`: one row for each group, each from 1 to the weight of the group.
    """
    n_groups, n_targets = targets.shape
    if not targets.size:
        return np.empty(targets.shape, np.uint32)
    group_of = np.repeat(np.arange(n_groups), n_targets)
    upper, before = np.zeros(targets.size, np.int64), np.zeros(targets.size, np.int64)
    per_round = max(1, room_bytes // (2 * _CELL_BYTES))
    for first in range(0, n_groups, per_round):
        end = min(n_groups, first + per_round)
        sums = _counted(chunks, lambda g, k, a=first, b=end: _in_range(g, a, b), lambda k: k >> 16, end - first)
        rows = np.flatnonzero((group_of >= first) & (group_of < end))
        upper[rows], before[rows] = _located(sums, group_of[rows] - first, targets.reshape(-1)[rows])
    # The lower half of the key, within the cells where a target is reached.
    cells, cell_of = np.unique(group_of << 16 | upper, return_inverse=True)
    remaining = targets.reshape(-1) - before
    lower = np.zeros(targets.size, np.int64)
    for first in range(0, len(cells), per_round):
        some = cells[first : first + per_round]
        sums = _counted(chunks, lambda g, k, c=some: _cell_rows(c, g, k), lambda k: k & 0xFFFF, len(some))
        rows = np.flatnonzero((cell_of >= first) & (cell_of < first + len(some)))
        lower[rows], _ = _located(sums, cell_of[rows] - first, remaining[rows])
    return (upper << 16 | lower).astype(np.uint32).reshape(targets.shape)


def _in_range(group: Array, first: int, end: int) -> Array:
    return np.where((group >= first) & (group < end), group - first, -1)


def _cell_rows(cells: Array, group: Array, key: Array) -> Array:
    """Return the position in `cells` (ascending) of each number, -1 for those in none."""
    mine = group.astype(np.int64) << 16 | (key >> np.uint32(16))
    positions = np.minimum(np.searchsorted(cells, mine), len(cells) - 1)
    return np.where(cells[positions] == mine, positions, -1)


def _counted(chunks: Chunks, row_of: Any, digit_of: Any, n_rows: int) -> NDArray[np.int64]:
    """Return the weight by row and digit, summed up along the digits."""
    sums = np.zeros(n_rows * _CELL, np.int64)
    for group, key, weight in chunks():
        row = row_of(group, key)
        mine = np.flatnonzero((row >= 0) & (key != NO_KEY))
        at = row[mine].astype(np.int64) * _CELL + digit_of(key[mine]).astype(np.int64)
        if n_rows * _CELL <= 4 * len(at):
            sums += _added(at, weight[mine], len(sums))
        else:
            np.add.at(sums, at, weight[mine])
    counted = sums.reshape(n_rows, _CELL)
    np.cumsum(counted, axis=1, out=counted)
    return counted


def _added(positions: Array, weight: Array, n: int) -> NDArray[np.int64]:
    """Return the sum of weights by position; exact, because sums below 2**53 are exact in floats."""
    return np.bincount(positions, weight, minlength=n).astype(np.int64)


def _located(sums: NDArray[np.int64], rows: Array, targets: Array) -> tuple[Array, Array]:
    """Return the digit at which each target is reached in its row, and the weight before that digit."""
    digits = np.array([np.searchsorted(sums[r], t) for r, t in zip(rows, targets, strict=True)], np.int64)
    before = np.where(digits > 0, sums[rows, np.maximum(digits - 1, 0)], 0)
    return digits, before
