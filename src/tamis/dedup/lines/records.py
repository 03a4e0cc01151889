"""The record files of line deduplication (stages.py), read by position in the order of the input.

Kept per record batch: the offsets of its columns in the file. Columns are read with pread: mapped pages would count as
memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tamis.dedup.records import StoredColumn, StoredColumns, runs_of
from tamis.formats.arrow.column_places import BatchPlaces
from tamis.formats.scratch.stored_arrays import StoredArray
from tamis.stores.reading import N_PREFETCH, prefetch
from tamis.stores.urls import is_bucket

Array = np.ndarray[Any, Any]
FACTS = ("file", "offset", "length", "n_units")


@dataclass(frozen=True)
class _UnitBatch:
    n_documents: int
    n_keys: int
    stored: StoredColumns


class UnitRecords:
    """All record batches. Units that have a key are numbered through all of them."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._is_far = any(is_bucket(path) for path in paths)
        self._runs: list[_UnitBatch] = runs_of(paths, "a record file of line deduplication", _run_of)
        self.n_runs = len(self._runs)
        self.n_documents = sum(run.n_documents for run in self._runs)
        self.bases = np.concatenate([[0], np.cumsum([run.n_keys for run in self._runs])]).astype(np.int64)
        self.n_keys = int(self.bases[-1])
        self._known: tuple[int, dict[str, Array], Any] = (-1, {}, None)  # a batch, its facts, its numbers of units

    def iter_keys(self, most: int) -> Iterator[tuple[Array, Array]]:
        """Yield (keys, numbers of their units), at most so many at a time, in the order of the input."""

        def read(some: tuple[int, int]) -> tuple[Array, Array]:
            i, first = some
            n = min(most, self._runs[i].n_keys - first)
            numbers = np.arange(self.bases[i] + first, self.bases[i] + first + n).astype(np.uint64)
            return self._runs[i].stored.read("keys", first, first + n), numbers

        # As many bytes on their way as are asked for at once: where one batch has them all, nothing is read ahead of
        # it.
        blocks = ((i, first) for i, run in enumerate(self._runs) for first in range(0, run.n_keys, most))
        largest = max((run.n_keys for run in self._runs), default=0)
        yield from prefetch(read, blocks, self._is_far and N_PREFETCH * largest <= most)

    def documents(self, i: int) -> dict[str, Array]:
        """Return the facts of the documents of a batch; `bounds[k]:bounds[k + 1]` are the keys of document k."""
        run = self._runs[i]
        columns = [*((name, run.n_documents) for name in FACTS), ("bounds", run.n_documents + 1)]
        read = prefetch(lambda column: run.stored.read(column[0], 0, column[1]), columns, self._is_far)
        facts = dict(zip([name for name, _ in columns], read, strict=True))
        return facts | {"bounds": facts["bounds"] // 8}

    def unit_numbers(self, i: int) -> Array:
        """Return the numbers within their documents of all units of a batch that have a key."""
        return self._runs[i].stored.read("numbers", 0, self._runs[i].n_keys)

    def place(self, unit: int) -> tuple[int, int, int]:
        """Return (file, offset of the document, number in it) of a unit. Ask in order: the batch is cached."""
        i = int(np.searchsorted(self.bases, unit, side="right")) - 1
        local = unit - int(self.bases[i])
        if self._known[0] != i:
            run = self._runs[i]
            numbers = StoredArray(run.stored.path, *run.stored.columns["numbers"], run.n_keys)
            self._known = i, self.documents(i), numbers
        _, facts, numbers = self._known
        k = int(np.searchsorted(facts["bounds"], local, side="right")) - 1
        return int(facts["file"][k]), int(facts["offset"][k]), int(numbers[local])


def _run_of(batch: BatchPlaces, first: tuple[int, int]) -> _UnitBatch:
    stored = StoredColumns.of(batch, FACTS)
    ends = batch.ends("keys")
    n_keys = int(ends[batch.n_rows]) // 8
    stored.columns["bounds"] = StoredColumn(ends.offset, ends.kind)
    for name, kind in (("keys", np.uint64), ("numbers", np.uint32)):
        stored.columns[name] = StoredColumn(batch.data_at(name) if n_keys else 0, np.dtype(kind))
    return _UnitBatch(batch.n_rows, n_keys, stored)
