"""Vectors that a model gave in one pass of a workflow, for the passes behind it: files in a folder, found again by the place of a document.

Written by workers while they work: a unit that is tried again writes the same rows once more, which changes nothing. Each file is named by
the places of its first and last row, so that a reader opens only those it needs.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from typing import Any

from tamis import files
from tamis._lazy import np
from tamis.stages.text.io.reader.ids import numbers_of
from tamis.tasks import DocumentBatch

_DISK_SPEED = 100_000_000  # bytes per second of a slow disk
_SPARE_BYTES = 2_000_000_000  # of the disk, for the output and everybody else
_NAME = re.compile(r"(\d{20})-(\d{20})-[0-9a-f]+\.npy")


def is_worth_keeping(seconds: float, n_bytes: int, free_bytes: int) -> bool:
    """Return True if results are worth keeping rather than recomputing.

    They are where recomputing takes longer than writing and reading them, and the disk has room. Results that
    are not kept are computed again.

    >>> is_worth_keeping(1.0, 10**6, 10**11), is_worth_keeping(0.001, 10**6, 10**11), is_worth_keeping(1.0, 10**6, 10**9)
    (True, False, False)
    """
    return seconds > 2 * n_bytes / _DISK_SPEED and free_bytes - n_bytes > _SPARE_BYTES


class RememberedRows:
    """Vectors by the place of their document in the input."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def has_any(self) -> bool:
        with contextlib.suppress(OSError), os.scandir(self.folder) as entries:
            return any(_NAME.fullmatch(e.name) for e in entries)
        return False

    def keep(self, batch: DocumentBatch, rows: Mapping[int, Any]) -> None:
        """Vectors of some rows of a batch, by their position in it; of rows whose place nobody knows none are kept."""
        numbers = _numbers(batch)
        at = [i for i in sorted(rows, key=lambda i: int(numbers[i])) if numbers[i] >= 0]
        if not at:
            return
        vectors = np.stack([rows[i] for i in at]).astype(np.float32)
        table = np.empty((len(at), vectors.shape[1] + 2), np.float32)
        table[:, :2] = np.ascontiguousarray(numbers[at]).view(np.float32).reshape(-1, 2)
        table[:, 2:] = vectors
        first, last = int(numbers[at[0]]), int(numbers[at[-1]])
        part = files.unguessable(self.folder, ".new-")
        with files.create(part) as out:
            np.save(out, table, allow_pickle=False)
        name = f"{first:020d}-{last:020d}-{os.path.basename(part).rpartition('-')[2]}.npy"
        files.finish(part, os.path.join(self.folder, name))

    def find(self, batch: DocumentBatch) -> list[Any]:
        """Return a vector for each row; None where none is known."""
        numbers = _numbers(batch)
        found: list[Any] = [None] * len(numbers)
        if not len(numbers):
            return found
        low, high = int(numbers.min()), int(numbers.max())
        for name in self._names(low, high):
            table = np.load(os.path.join(self.folder, name), allow_pickle=False)
            known = np.ascontiguousarray(table[:, :2]).view(np.int64).reshape(-1)
            at = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
            for i in np.flatnonzero(known[at] == numbers).tolist():
                found[i] = table[at[i], 2:]
        return found

    def _names(self, low: int, high: int) -> list[str]:
        with contextlib.suppress(OSError), os.scandir(self.folder) as entries:
            told = [(e.name, m) for e in entries if (m := _NAME.fullmatch(e.name))]
            return sorted(name for name, m in told if int(m[1]) <= high and int(m[2]) >= low)
        return []


def _numbers(batch: DocumentBatch) -> np.ndarray[Any, Any]:
    """Places as single numbers; -1 where unknown."""
    places, offsets = batch.places()
    return np.where(places < 0, -1, numbers_of(places, offsets))
