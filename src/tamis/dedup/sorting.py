"""Sorting keys with their documents' numbers: numpy for few, the compiled radix sort for many.

Below a few million pairs numpy does; where the compiled sort is loaded already, it is three times as fast.
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

_FEW = 4_000_000


def sort_pairs(keys: NDArray[np.uint64], numbers: NDArray[np.uint32]) -> None:
    """In place, by key; equal keys by number (the numbers must come in ascending runs, as records give them)."""
    if len(keys) > _FEW or "tamis.kernels.sketch.sorting" in sys.modules:
        from tamis.kernels.sketch.sorting import sort_pairs as compiled

        compiled(keys, numbers)
        return
    order = np.argsort(keys, kind="stable")
    keys[:] = keys[order]
    numbers[:] = numbers[order]


def runs(keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(starts, ends) of runs of at least two equal keys, in sorted keys."""
    if not len(keys):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    cuts = np.concatenate([[0], np.flatnonzero(keys[1:] != keys[:-1]) + 1, [len(keys)]]).astype(np.int64)
    several = np.flatnonzero(np.diff(cuts) > 1)
    return cuts[several], cuts[several + 1]
