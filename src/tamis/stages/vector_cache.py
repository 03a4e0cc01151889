"""Vectors that a model computed in one pass of a workflow, stored for later passes by the position of their document.

Workers write while they compute: a unit that is retried writes the same rows again, which changes nothing. A file is
named by the positions of its first and last row, so that a reader opens only those it needs.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from typing import Any

from tamis import files
from tamis._lazy import np
from tamis.stages.text.io.reader.ids import ids_of
from tamis.tasks import DocumentBatch

_DISK_SPEED = 100_000_000  # bytes per second of a slow disk
_SPARE_BYTES = 2_000_000_000  # of the disk, for the output and other processes
_NAME = re.compile(r"(\d{20})-(\d{20})-[0-9a-f]+\.npy")


def is_worth_storing(seconds: float, n_bytes: int, free_bytes: int) -> bool:
    """Return True if recomputing takes longer than writing and reading, and the disk has room.

    >>> [is_worth_storing(seconds, 10**6, free) for seconds, free in ((1.0, 10**11), (0.001, 10**11), (1.0, 10**9))]
    [True, False, False]
    """
    return seconds > 2 * n_bytes / _DISK_SPEED and free_bytes - n_bytes > _SPARE_BYTES


class VectorCache:
    """Vectors in the files of a folder, by the position of their document in the input."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def has_any(self) -> bool:
        with contextlib.suppress(OSError), os.scandir(self.folder) as entries:
            return any(_NAME.fullmatch(e.name) for e in entries)
        return False

    def store(self, batch: DocumentBatch, vectors: Mapping[int, Any]) -> None:
        """Store vectors by their row in the batch, except for documents of unknown position."""
        keys = _position_keys(batch)
        rows = [i for i in sorted(vectors, key=lambda i: int(keys[i])) if keys[i] >= 0]
        if not rows:
            return
        values = np.stack([vectors[i] for i in rows]).astype(np.float32)
        table = np.empty((len(rows), values.shape[1] + 2), np.float32)
        table[:, :2] = np.ascontiguousarray(keys[rows]).view(np.float32).reshape(-1, 2)
        table[:, 2:] = values
        first, last = int(keys[rows[0]]), int(keys[rows[-1]])
        part = files.unguessable(self.folder, ".new-")
        with files.create(part) as out:
            np.save(out, table, allow_pickle=False)
        name = f"{first:020d}-{last:020d}-{os.path.basename(part).rpartition('-')[2]}.npy"
        files.finish(part, os.path.join(self.folder, name))

    def load(self, batch: DocumentBatch) -> list[Any]:
        """Return the vector of each row, or None if it is not stored."""
        keys = _position_keys(batch)
        vectors: list[Any] = [None] * len(keys)
        if not len(keys):
            return vectors
        for name in self._names(int(keys.min()), int(keys.max())):
            table = np.load(os.path.join(self.folder, name), allow_pickle=False)
            stored = np.ascontiguousarray(table[:, :2]).view(np.int64).reshape(-1)
            indices = np.minimum(np.searchsorted(stored, keys), len(stored) - 1)
            for i in np.flatnonzero(stored[indices] == keys).tolist():
                vectors[i] = table[indices[i], 2:]
        return vectors

    def _names(self, low: int, high: int) -> list[str]:
        with contextlib.suppress(OSError), os.scandir(self.folder) as entries:
            matches = [(e.name, m) for e in entries if (m := _NAME.fullmatch(e.name))]
            return sorted(name for name, m in matches if int(m[1]) <= high and int(m[2]) >= low)
        return []


def _position_keys(batch: DocumentBatch) -> np.ndarray[Any, Any]:
    """Return positions as single numbers, -1 if unknown."""
    files_, offsets = batch.places()
    return np.where(files_ < 0, -1, ids_of(files_, offsets))
