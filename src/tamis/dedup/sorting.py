"""Sorting keys with their documents' numbers: numpy for few, the compiled radix sort for many.

Below a few million pairs numpy does; where the compiled sort is loaded already, it is three times as fast.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

_FEW = 4_000_000


def sort_pairs(keys: NDArray[np.uint64], numbers: NDArray[np.uint32]) -> None:
    """Sort in place by key, equal keys by number.

    The numbers must come in ascending runs, as records give them.
    """
    if len(keys) > _FEW or "tamis.kernels.sketch.sorting" in sys.modules:
        from tamis.kernels.sketch.sorting import sort_pairs as compiled

        compiled(keys, numbers)
        return
    order = np.argsort(keys, kind="stable")
    keys[:] = keys[order]
    numbers[:] = numbers[order]


def cuts_between(values: NDArray[Any]) -> NDArray[np.int64]:
    """Return the positions where runs of equal values begin, and where the last one ends.

    >>> cuts_between(np.array([7, 7, 9])).tolist(), cuts_between(np.empty(0)).tolist()
    ([0, 2, 3], [0])
    """
    if not len(values):
        return np.zeros(1, np.int64)
    return np.concatenate([[0], np.flatnonzero(values[1:] != values[:-1]) + 1, [len(values)]]).astype(np.int64)


def positions_in(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return all positions of [start, end) ranges, concatenated."""
    sizes = ends - starts
    return np.repeat(starts - np.cumsum(sizes) + sizes, sizes) + np.arange(int(sizes.sum()))


def runs(keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (starts, ends) of runs of at least two equal keys, in sorted keys."""
    cuts = cuts_between(keys)
    several = np.flatnonzero(np.diff(cuts) > 1)
    return cuts[several], cuts[several + 1]
