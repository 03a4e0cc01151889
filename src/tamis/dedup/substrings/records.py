"""The record files of substring deduplication (stages.py), read by ranges of keys, or by position.

Selections of a record batch are sorted by key, so that a range of keys is one slice of each batch, and the key space
can be gone through in as many parts as the memory takes without another copy on the disk. Kept in memory for each
record batch: the offsets of its columns in the file, and where each part of the key space begins.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tamis.dedup.records import StoredColumn, StoredColumns, parts_of, runs_of
from tamis.dedup.sorting import cuts_between
from tamis.errors import FormatError, UsageError
from tamis.formats.arrow.column_places import BatchPlaces
from tamis.formats.scratch.stored_arrays import NpyWriter, open_npy, read_into
from tamis.stores.scratch_files import resolve
from tamis.stores.urls import is_bucket

if TYPE_CHECKING:
    from tamis.dedup.substrings.indexed import IndexedDocuments

Array = np.ndarray[Any, Any]
FACTS = ("file", "offset", "length")
PACKED = {"keys": np.uint64, "contexts": np.uint64, "at": np.uint32, "reaches": np.uint32}
RUNS = {"run_rows": np.uint32, "run_spans": np.uint32}
SELECTION = np.dtype([("doc", "<u4"), ("position", "<u4"), ("reach", "<u4"), ("span", "<u4")])
MAX_DOCUMENTS = (1 << 32) - 1


@dataclass(frozen=True)
class _SubstringBatch:
    """One record batch."""

    n_documents: int
    n: dict[str, int]  # values of each packed column
    stored: StoredColumns


class SelectionRecords:
    """All record batches of the first pass, with their documents numbered in the order of the input.

    `indexed_paths`: files of the pass over an index, whose documents come before those of the input.
    """

    def __init__(self, paths: Sequence[str], indexed_paths: Sequence[str] = ()) -> None:
        expected = "a record file of substring deduplication"
        indexed: list[_SubstringBatch] = runs_of(indexed_paths, expected, _run_of)
        self._runs: list[_SubstringBatch] = indexed + runs_of(paths, expected, _run_of)
        self._n_indexed_runs = len(indexed)
        self.bases = np.concatenate([[0], np.cumsum([run.n_documents for run in self._runs])]).astype(np.int64)
        self.n_documents = int(self.bases[-1])
        if self.n_documents >= MAX_DOCUMENTS:
            raise UsageError(
                f"substring deduplication: {self.n_documents:,} documents; at most {MAX_DOCUMENTS:,} can be compared "
                "at once. Split the input"
            )
        self.sizes = np.array([run.n["keys"] for run in self._runs], np.int64)  # selections of each batch
        self.n_selections = int(self.sizes.sum())

    def write_documents(self, folder: str, indexed: IndexedDocuments) -> None:
        """Write the facts of all documents as arrays, for when the records are gone."""
        n_runs = self._n_indexed_runs
        for first, run in zip(self.bases.tolist(), self._runs[:n_runs], strict=False):
            indexed.check_order(first, *(run.stored.read(name, 0, run.n_documents) for name in ("file", "offset")))
        if int(self.bases[n_runs]) != len(indexed):
            raise FormatError(
                f"{int(self.bases[n_runs]):,} of {len(indexed):,} documents of the index could be read; it is damaged: "
                "make it anew"
            )
        kinds = {"file": "<i4", "offset": "<i8", "length": "<i8"}
        os.makedirs(folder, exist_ok=True)
        with contextlib.ExitStack() as files:
            out = {
                name: files.enter_context(NpyWriter(resolve(os.path.join(folder, f"{name}.npy")), kind))
                for name, kind in kinds.items()
            }
            for file, offset in indexed.places():
                out["file"].append(file.astype("<i4"))
                out["offset"].append(offset)
            for i, run in enumerate(self._runs):
                for name in FACTS if i >= n_runs else ("length",):
                    out[name].append(run.stored.read(name, 0, run.n_documents).astype(kinds[name]))

    def parts(self, bytes_per_selection: int, room_bytes: int) -> KeyParts:
        """Cut the key space into parts that fit."""
        return KeyParts(self._runs, self.bases, self.n_selections, max(1, room_bytes // bytes_per_selection))


class KeyParts:
    """The selections in the order of their keys, a part of the key space at a time.

    A key that occurs too often for one part is gone through by itself, by context, and a context that does in pieces.
    """

    def __init__(self, runs: list[_SubstringBatch], bases: Array, n_selections: int, most: int) -> None:
        self._runs, self._bases, self._most = runs, bases.tolist(), most
        parts = parts_of(n_selections, most)
        bounds = np.array([low for low, _ in parts[1:]], np.uint64)
        self._cuts = []
        for run in runs:
            n = run.n["keys"]
            inner = np.searchsorted(run.stored.read("keys", 0, n), bounds) if len(bounds) else np.empty(0, np.int64)
            self._cuts.append(np.concatenate([[0], inner, [n]]).astype(np.int64))
        self._n = len(parts)

    def __len__(self) -> int:
        return self._n

    def read(self, p: int) -> tuple[Array, Array, Array, Array]:
        """Return (keys, contexts, selections) of a part, by document and position among equal keys; and frequent keys.

        Frequent keys are left out of the part: `read_frequent` yields their selections.
        """
        total = sum(int(cuts[p + 1] - cuts[p]) for cuts in self._cuts)
        frequent = np.empty(0, np.uint64)
        if total > 2 * self._most:
            every = np.concatenate([run.stored.read("keys", *self._range(i, p)) for i, run in enumerate(self._runs)])
            every.sort()
            starts = cuts_between(every)
            frequent = every[starts[:-1][np.diff(starts) > self._most]]
            del every
        keys, contexts, rows = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)], [np.empty(0, SELECTION)]
        for i, run in enumerate(self._runs):
            first, end = self._range(i, p)
            if first == end:
                continue
            key = run.stored.read("keys", first, end)
            chosen = np.flatnonzero(~np.isin(key, frequent)) if len(frequent) else slice(None)
            keys.append(key[chosen])
            contexts.append(run.stored.read("contexts", first, end)[chosen])
            rows.append(self._rows(i, first, end)[chosen])
        return np.concatenate(keys), np.concatenate(contexts), np.concatenate(rows), frequent

    def read_frequent(self, p: int, key: np.uint64) -> Iterator[tuple[Array, Array]]:
        """Yield (contexts, selections) of one key, by context, document and position."""
        ranges = []
        for i, run in enumerate(self._runs):
            first, end = self._range(i, p)
            keys = run.stored.read("keys", first, end)
            ranges.append(tuple(first + int(np.searchsorted(keys, key, side=side)) for side in ("left", "right")))
        total = sum(end - first for first, end in ranges)
        for low, high in parts_of(total, self._most):
            yield from self._of_contexts(ranges, low, high)

    def _of_contexts(self, ranges: list[Any], low: int, high: int) -> Iterator[tuple[Array, Array]]:
        """Yield the selections in `ranges` whose contexts are in [low, high)."""
        found = [np.empty(0, np.uint64)]
        for run, (first, end) in zip(self._runs, ranges, strict=True):
            context = run.stored.read("contexts", first, end)
            found.append(context[(context >= np.uint64(low)) & (context <= np.uint64(high - 1))])
        contexts = np.concatenate(found)
        contexts.sort()
        starts = cuts_between(contexts)
        is_frequent = np.diff(starts) > self._most
        frequent = contexts[starts[:-1][is_frequent]]
        others = contexts[starts[:-1][~is_frequent]]
        del contexts
        if len(others):
            yield self._chosen(ranges, others)
        for context in frequent:
            for i in range(len(ranges)):
                mine = [(0, 0)] * len(ranges)
                mine[i] = ranges[i]
                if ranges[i][0] < ranges[i][1]:
                    yield self._chosen(mine, np.array([context]))

    def _chosen(self, ranges: list[Any], wanted: Array) -> tuple[Array, Array]:
        contexts, rows = [np.empty(0, np.uint64)], [np.empty(0, SELECTION)]
        for i, (run, (first, end)) in enumerate(zip(self._runs, ranges, strict=True)):
            if first < end:
                context = run.stored.read("contexts", first, end)
                mine = np.flatnonzero(np.isin(context, wanted))
                contexts.append(context[mine])
                rows.append(self._rows(i, first, end)[mine])
        context = np.concatenate(contexts)
        order = np.argsort(context, kind="stable")
        return context[order], np.concatenate(rows)[order]

    def _range(self, i: int, p: int) -> tuple[int, int]:
        return int(self._cuts[i][p]), int(self._cuts[i][p + 1])

    def _rows(self, i: int, first: int, end: int) -> Array:
        """Return selections of a record batch, in the order of their keys."""
        run, some = self._runs[i], np.zeros(end - first, SELECTION)
        some["reach"] = run.stored.read("reaches", first, end)
        length = np.maximum(run.stored.read("length", 0, run.n_documents), 0)
        ends = np.cumsum(length)
        at = run.stored.read("at", first, end).astype(np.int64)
        local = np.searchsorted(ends, at, side="right")
        some["doc"], some["position"] = self._bases[i] + local, at - (ends - length)[local]
        n_runs = run.n["run_rows"]
        if n_runs:
            which, span = run.stored.read("run_rows", 0, n_runs), run.stored.read("run_spans", 0, n_runs)
            mine = (which >= first) & (which < end)
            some["span"][which[mine] - np.uint32(first)] = span[mine]
        return some


def _run_of(batch: BatchPlaces, first: tuple[int, int]) -> _SubstringBatch:
    stored = StoredColumns.of(batch, FACTS)
    n = {}
    for name, kind in (PACKED | RUNS).items():
        n[name] = int(batch.ends(name)[batch.n_rows]) // np.dtype(kind).itemsize
        stored.columns[name] = StoredColumn(batch.data_at(name), np.dtype(kind))
    if len({n[name] for name in PACKED}) != 1:
        raise FormatError(f"{batch.path}: its columns do not agree; start over with fresh (--fresh)")
    return _SubstringBatch(batch.n_rows, n, stored)


class ContextTexts:
    """The bytes around candidates that a second pass wrote, by number of the candidate (in the order of the input)."""

    def __init__(self, paths: Sequence[str], folder: str, indexed_paths: Sequence[str] = ()) -> None:
        """`folder`: for the table of places, 8 bytes per candidate. `indexed_paths`: of documents that come before."""
        batches: list[BatchPlaces] = [
            batch
            for some in (indexed_paths, paths)
            for batch in runs_of(some, "a file of candidate texts", lambda batch, _: batch)
        ]
        self._paths = sorted({batch.path for batch in batches})
        self._is_far = [is_bucket(path) for path in self._paths]
        self._number = {path: i for i, path in enumerate(self._paths)}
        self._open: dict[int, int] = {}
        where = resolve(os.path.join(folder, "where.npy"))
        with NpyWriter(where, "<u8") as out:
            for batch in batches:
                out.append(self._places(batch))
        self._where = open_npy(where)

    def __len__(self) -> int:
        return len(self._where)

    def _places(self, batch: BatchPlaces) -> Array:
        """Return the number of the file and the place therein of each candidate of a record batch."""
        starts = batch.ends("text").read(0, batch.n_rows + 1)
        ends = batch.ends("places").read(0, batch.n_rows + 1) // 4
        places = np.empty(int(ends[-1]), np.uint32)
        read_into(batch.path, batch.data_at("places"), places)
        offsets = np.repeat(starts[:-1], np.diff(ends)) + places + batch.data_at("text")
        return offsets.astype(np.uint64) | np.uint64(self._number[batch.path] << 44)

    def locate(self, numbers: Array) -> Array:
        """Return the places of candidates with these ascending numbers."""
        return gather(self._where, numbers)

    def read(self, places: Array, before: Array, after: Array) -> tuple[Array, Array]:
        """Return the bytes around candidates, one after the other, and where each candidate is in them."""
        sizes = before + after
        ends = np.cumsum(sizes)
        data = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
        view: memoryview = memoryview(data)  # type: ignore[arg-type]
        order = np.argsort(places, kind="stable")
        starts = ends - sizes
        file = (places >> np.uint64(44)).astype(np.int64)
        offset = (places & np.uint64((1 << 44) - 1)).astype(np.int64) - before
        for f, at, start, size in zip(
            *(values[order].tolist() for values in (file, offset, starts, sizes)), strict=True
        ):
            if self._is_far[f]:
                read_into(self._paths[f], at, data[start : start + size])
            elif os.preadv(self._file(f), [view[start : start + size]], at) != size:
                raise FormatError(f"{self._paths[f]}: ends early; start over with fresh (--fresh)")
        return data, starts + before

    def _file(self, number: int) -> int:
        if number not in self._open:
            if len(self._open) >= 256:
                self.close()
            self._open[number] = os.open(self._paths[number], os.O_RDONLY | os.O_CLOEXEC)
        return self._open[number]

    def close(self) -> None:
        for file in self._open.values():
            os.close(file)
        self._open.clear()


_STEP = 1 << 20


def gather(stored: Any, numbers: Array) -> Array:
    """Return the values of a stored array at ascending indexes, reading it in pieces."""
    out = np.empty(len(numbers), stored.kind)
    first = 0
    while first < len(numbers):
        begin = int(numbers[first])
        last = int(np.searchsorted(numbers, begin + _STEP))
        out[first:last] = stored.read(begin, int(numbers[last - 1]) + 1)[numbers[first:last].astype(np.int64) - begin]
        first = last
    return out
