"""Vectors that a stage computed in one pass of a workflow, stored for later passes by the position of their document.

Workers write while they compute: a unit that is retried writes the same rows again, which changes nothing. A file is
named by the positions of its first and last row, so that a reader opens only those it needs.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tamis import files
from tamis._lazy import np
from tamis.stages.text.io.reader.ids import ids_of
from tamis.tasks import DocumentBatch

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

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
        if vectors:
            self.store_rows(batch, np.array(list(vectors), np.int64), np.stack(list(vectors.values())))

    def store_rows(self, batch: DocumentBatch, rows: Array, vectors: Array) -> None:
        """Store the vectors of these rows of a batch, except for documents of unknown position."""
        keys = _position_keys(batch)[rows]
        order = np.argsort(keys, kind="stable")
        order = order[keys[order] >= 0]
        if not len(order):
            return
        keys = keys[order]
        table = np.empty((len(order), vectors.shape[1] + 2), np.float32)
        table[:, :2] = keys.view(np.float32).reshape(-1, 2)
        table[:, 2:] = vectors[order]
        first, last = int(keys[0]), int(keys[-1])
        part = files.unguessable(self.folder, ".new-")
        with files.create(part) as out:
            np.save(out, table, allow_pickle=False)
        name = f"{first:020d}-{last:020d}-{os.path.basename(part).rpartition('-')[2]}.npy"
        files.finish(part, os.path.join(self.folder, name))

    def load(self, batch: DocumentBatch) -> list[Any]:
        """Return the vector of each row, or None if it is not stored."""
        vectors: list[Any] = [None] * batch.num_items
        for rows, values in self._stored(batch):
            for i, vector in zip(rows.tolist(), values, strict=True):
                vectors[i] = vector
        return vectors

    def load_rows(self, batch: DocumentBatch, n_values: int) -> tuple[Array, Array]:
        """Return which rows of a batch are stored, and the vectors of all rows; those of others are zeros."""
        is_stored, vectors = np.zeros(batch.num_items, bool), np.zeros((batch.num_items, n_values), np.float32)
        for rows, values in self._stored(batch):
            is_stored[rows], vectors[rows] = True, values
        return is_stored, vectors

    def _stored(self, batch: DocumentBatch) -> Iterator[tuple[Array, Array]]:
        """Yield rows of a batch and their vectors, by file."""
        keys = _position_keys(batch)
        if not len(keys):
            return
        for name in self._names(int(keys.min()), int(keys.max())):
            table = np.load(os.path.join(self.folder, name), allow_pickle=False)
            stored = np.ascontiguousarray(table[:, :2]).view(np.int64).reshape(-1)
            indices = np.minimum(np.searchsorted(stored, keys), len(stored) - 1)
            rows = np.flatnonzero(stored[indices] == keys)
            yield rows, table[indices[rows], 2:]

    def _names(self, low: int, high: int) -> list[str]:
        with contextlib.suppress(OSError), os.scandir(self.folder) as entries:
            matches = [(e.name, m) for e in entries if (m := _NAME.fullmatch(e.name))]
            return sorted(name for name, m in matches if int(m[1]) <= high and int(m[2]) >= low)
        return []


def _position_keys(batch: DocumentBatch) -> Array:
    """Return positions as single numbers, -1 if unknown."""
    files_, offsets = batch.places()
    return np.where(files_ < 0, -1, ids_of(files_, offsets))
