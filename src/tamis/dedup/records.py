"""The record files of a pass: one numbering of all documents, and columns read by position.

Documents are numbered 0 to n-1 in the order of the input (file, offset), whatever the partitions were. Columns are
read with pread into separate arrays: mapped pages would count as memory of this process. In memory for each record
batch: its number of rows, its base number and the offsets of its columns in the file (some 8 bytes each).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis._dataclasses import dataclass
from tamis.dedup.keys import NO_ROW
from tamis.errors import FormatError, UsageError
from tamis.formats.arrow.column_places import BatchPlaces, batches_of, numpy_type
from tamis.formats.jsonl import record_index
from tamis.formats.scratch.stored_arrays import read_into
from tamis.stores.reading import prefetch
from tamis.stores.urls import is_bucket

Array = NDArray[Any]
MAX_DOCUMENTS = NO_ROW  # numbers are uint32
_ALL = (0, 1 << 64)
_GAP = 1 << 17  # bytes that are read and not needed, rather than asking a store once more
_FEW_ROWS = 1024  # are read whole


class StoredColumn(NamedTuple):
    """The location of a column in a file, and the type of its values."""

    offset: int
    kind: np.dtype[Any]


@dataclass(frozen=True)
class StoredColumns:
    """Columns of one record batch, read by position."""

    path: str
    columns: dict[str, StoredColumn]

    @classmethod
    def of(cls, batch: BatchPlaces, names: Sequence[str]) -> StoredColumns:
        """Locate these columns, which hold one number per row."""
        values = {name: batch.values(name) for name in names}
        return cls(batch.path, {name: StoredColumn(v.offset, v.kind) for name, v in values.items()})

    def read(self, name: str, first: int, end: int) -> Array:
        """Return the values of a column from `first` up to `end`."""
        offset, kind = self.columns[name]
        values = np.empty(max(0, end - first), kind)
        if len(values):
            read_into(self.path, offset + first * kind.itemsize, values.view(np.uint8))
        return values


@dataclass(frozen=True)
class _RecordBatch:
    """One record batch, with the offsets of its columns in the file."""

    path: str
    n_rows: int
    offsets: dict[str, int]
    first: tuple[int, int]  # file and offset of its first document


class Records:
    """All record batches of one pass, in input order."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.types: dict[str, np.dtype[Any]] = {}
        self._is_far = any(is_bucket(path) for path in paths)
        self._runs = runs_of(paths, "a record file of a deduplication", self._run_of)
        sizes = [run.n_rows for run in self._runs]
        self.bases = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.n_documents = int(self.bases[-1])
        if self.n_documents >= MAX_DOCUMENTS:
            raise UsageError(
                f"deduplication: {self.n_documents:,} documents; at most {MAX_DOCUMENTS:,} can be compared at once. "
                "Split the input, and compare the second part with the first by --against"
            )

    def _run_of(self, batch: BatchPlaces, first: tuple[int, int]) -> _RecordBatch:
        for name, kind in batch.types.items():
            stored = numpy_type(kind)
            if self.types.setdefault(name, stored) != stored:
                raise UsageError(
                    f"{batch.path}: {name} takes {stored.itemsize} bytes here and {self.types[name].itemsize} "
                    "elsewhere; embeddings must be of one length in all documents"
                )
        return _RecordBatch(
            batch.path, batch.n_rows, {name: buffers[1][0] for name, buffers in batch.buffers.items()}, first
        )

    def write_known(self, folder: str) -> None:
        """Write the index of the columns that describe the records, so that a later pass need not search for them.

        See formats/jsonl/record_index.py.
        """
        record_index.write_index(
            folder, [record_index.IndexedBatch(run.path, run.first, run.n_rows, run.offsets) for run in self._runs]
        )

    def __len__(self) -> int:
        return self.n_documents

    def have(self, name: str) -> bool:
        """Return True if every record batch has this column."""
        return all(name in run.offsets for run in self._runs)

    def column(self, name: str) -> Array:
        """Return a whole column by document number; for columns that fit into memory."""
        out = np.empty(self.n_documents, self.types[name])

        def read(i: int) -> None:
            _read_into(self._runs[i], name, out[self.bases[i] : self.bases[i + 1]])

        for _ in prefetch(read, range(len(self._runs)), self._is_far):
            pass
        return out

    def map_batches(self, name: str, work: Callable[[int, int, Callable[[Array], None]], None], n_threads: int) -> None:
        """Call `work(first number, rows, read)` for every record batch that has the column, in several threads.

        `read` fills an array of that many values.
        """

        def call(i: int) -> None:
            run = self._runs[i]
            if name in run.offsets:
                work(int(self.bases[i]), run.n_rows, lambda out: _read_into(run, name, out))

        with ThreadPoolExecutor(n_threads, "tamis-column") as pool:
            for _ in pool.map(call, range(len(self._runs))):
                pass

    def gather(self, names: Sequence[str], numbers: Array) -> dict[str, Array]:
        """Return the values of some columns for some documents, given by ascending numbers."""
        # Without documents the types of columns are unknown.
        out = {name: np.empty(len(numbers), self.types.get(name, np.dtype(np.uint64))) for name in names}
        cuts = np.searchsorted(numbers, self.bases)

        def read(i: int) -> None:
            run, a, b = self._runs[i], int(cuts[i]), int(cuts[i + 1])
            rows = (numbers[a:b] - self.bases[i]).astype(np.int64)
            for name in names:
                values = np.empty(run.n_rows, self.types[name])
                _read_into(run, name, values)
                out[name][a:b] = values[rows]

        for _ in prefetch(read, np.flatnonzero(np.diff(cuts)).tolist(), self._is_far):
            pass
        return out

    def gather_any(self, names: Sequence[str], numbers: Array) -> dict[str, Array]:
        """Return values of some columns as `gather` does, for numbers in any order."""
        order = np.argsort(numbers, kind="stable")
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return {name: values[back] for name, values in self.gather(names, numbers[order]).items()}

    def keys(self, k: int, part: tuple[int, int] = _ALL) -> tuple[Array, Array]:
        """Yield keys in [part) and the numbers of their documents, run after run; ascending within a run."""
        keys, numbers = [np.empty(0, np.uint64)], [np.empty(0, np.uint32)]

        def read(i: int) -> tuple[Array, Array]:
            run = self._runs[i]
            key, row = _read_near(run, k, part) or _read_keys(run, k, 0, run.n_rows)
            a, b = _slice(key, row, part)
            return key[a:b].copy(), (row[a:b] + self.bases[i]).astype(np.uint32)

        for key, number in prefetch(read, range(len(self._runs)), self._is_far):
            if len(key):
                keys.append(key)
                numbers.append(number)
        return np.concatenate(keys), np.concatenate(numbers)

    def iter_column(self, name: str, or_zeros: bool = False) -> Any:
        """Yield (first number, values) of every record batch.

        `or_zeros`: batches that do not have the column have zeros in it.
        """

        def read(i: int) -> tuple[int, Array]:
            values = np.zeros(self._runs[i].n_rows, self.types[name])
            if name in self._runs[i].offsets or not or_zeros:
                _read_into(self._runs[i], name, values)
            return int(self.bases[i]), values

        yield from prefetch(read, range(len(self._runs)), self._is_far)


def runs_of(paths: Sequence[str], expected: str, make: Callable[[BatchPlaces, tuple[int, int]], Any]) -> list[Any]:
    """Return `make(batch, first)` for all record batches of these files, in input order.

    `first`: the file and offset of the first document of the batch. Raises FormatError where a file is not
    `what`.
    """

    def of_file(path: str) -> list[tuple[tuple[int, int], Any]]:
        batches = []
        try:
            for batch in batches_of(path):
                first = (int(batch.values("file")[0]), int(batch.values("offset")[0]))
                batches.append((first, make(batch, first)))
        except (FormatError, KeyError) as exc:
            raise FormatError(f"{path}: not {expected}: {exc}") from None
        return batches

    batches = [run for some in prefetch(of_file, paths, any(is_bucket(path) for path in paths)) for run in some]
    return [run for _, run in sorted(batches, key=lambda pair: pair[0])]


def _read_keys(run: _RecordBatch, k: int, first: int, last: int) -> tuple[Array, Array]:
    key, row = np.empty(last - first, np.uint64), np.empty(last - first, np.uint32)
    begin, rows_at = run.offsets[f"key_{k}"] + first * key.itemsize, run.offsets[f"row_{k}"] + first * row.itemsize
    if is_bucket(run.path) and 0 <= rows_at - begin - key.nbytes <= _GAP:  # one request for both
        data = np.empty(rows_at + row.nbytes - begin, np.uint8)
        read_into(run.path, begin, data)
        return data[: key.nbytes].view(np.uint64), data[rows_at - begin :].copy().view(np.uint32)
    read_into(run.path, begin, key)
    read_into(run.path, rows_at, row)
    return key, row


def _read_near(run: _RecordBatch, k: int, part: tuple[int, int]) -> tuple[Array, Array] | None:
    """Return the keys around a small part, read only near their expected position.

    Keys are sorted hashes, so they are evenly distributed. None if the keys read do not reach beyond the part
    on both sides: then the whole column must be read. Without this, a deduplication in a thousand parts would
    read all keys a thousand times.
    """
    low, high = part
    if (high - low) << 3 > 1 << 64 or run.n_rows < _FEW_ROWS:
        return None
    margin = 4 * math.isqrt(run.n_rows) + 16
    first = max(0, (low * run.n_rows >> 64) - margin)
    last = min(run.n_rows, (high * run.n_rows >> 64) + margin)
    key, row = _read_keys(run, k, first, last)
    begins = first == 0 or int(key[0]) < low
    ends = last == run.n_rows or (int(key[-1]) >= high and int(row[-1]) != NO_ROW)
    return (key, row) if begins and ends and (first == 0 or int(row[0]) != NO_ROW) else None


def _slice(key: Array, row: Array, part: tuple[int, int]) -> tuple[int, int]:
    n = len(key) - int(np.count_nonzero(row == NO_ROW))  # documents without a key come last
    low, high = part
    a = int(np.searchsorted(key[:n], np.uint64(low))) if low else 0
    b = int(np.searchsorted(key[:n], np.uint64(high))) if high < 1 << 64 else n
    return a, b


def _read_into(run: _RecordBatch, name: str, out: Array) -> None:
    read_into(run.path, run.offsets[name], out)


def parts_of(n_bytes: int, room_bytes: int) -> list[tuple[int, int]]:
    """Return ranges of 64-bit keys, as many as needed for each to fit: keys are hashes, so they are even."""
    n = max(1, -(-n_bytes // max(1, room_bytes)))
    cuts = [i * (1 << 64) // n for i in range(n + 1)]
    return list(itertools.pairwise(cuts))
