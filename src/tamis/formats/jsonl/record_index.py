"""The index of records that an earlier pass read from plain JSONL files: position, length and hash of each.

The pass writes three columns next to its other results, by `file` and `offset` (Arrow files, one record batch per
unit); those of documents that it dropped are in a separate file (`DroppedWriter`). A later pass over the same files
takes the records of a range from there, without reading the file. It uses them only where they cover the range without
a gap, line feeds included: then there is neither a blank line nor a record that the first pass quarantined.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tamis._dataclasses import dataclass
from tamis.errors import FormatError
from tamis.formats.jsonl.block import JsonlBlock
from tamis.formats.scratch.stored_arrays import open_npy, read_into
from tamis.stores.scratch_files import open_to_write, resolve
from tamis.tasks import DocumentBatch

COLUMNS = ("record_bytes", "record_hi", "record_lo")
RECORD_HASH = ("record_hi", "record_lo")
KEPT, DROPPED = "kept", "dropped"
_LEAST_BYTES = 512  # on average: finding and hashing shorter records again costs no more than keeping this of them
_MOST_BYTES = 1 << 30  # of a record: a longer one is not read at once
_READ = ("file", "offset", *COLUMNS)
_TYPES = {"file": "<i4", "offset": "<i8", "record_bytes": "<u4", "record_hi": "<u8", "record_lo": "<u8"}
_LINE_FEED = 10
_RUN = np.dtype(
    [("file", "<i4"), ("offset", "<i8"), ("path", "<i4"), ("n_rows", "<i8"), *((f"at_{name}", "<i8") for name in _READ)]
)
Array = np.ndarray[Any, Any]


def record_columns(batch: DocumentBatch, positions: Array | None = None) -> dict[str, Array]:
    """Return the columns that a later pass needs for these documents' records (`positions`: of some rows).

    Returns no columns if the records are not in an uncompressed file.
    """
    lineage = batch.lineage
    if lineage is None or not batch.is_identified or not batch.num_items:
        return {}
    origin, rows, (hi, lo) = lineage.origin, lineage.rows, batch.identity
    if not isinstance(origin, JsonlBlock) or not origin.is_open or not _is_indexable(origin):
        return {}
    if positions is not None:
        rows, hi, lo = rows[positions], hi[positions], lo[positions]
    if not len(rows) or bool((rows < 0).any()):
        return {}
    sizes = origin.end[rows] - origin.start[rows]
    return {"record_bytes": sizes.astype(np.uint32), "record_hi": hi, "record_lo": lo}


def _is_indexable(block: JsonlBlock) -> bool:
    """Return True if records are long enough, none is too long, and each is a line of its own.

    The check is done per block, so that the answer is the same for all documents of a unit, kept or dropped.
    """
    sizes, end = block.end - block.start, block.end
    if not len(sizes) or int(sizes.max()) > _MOST_BYTES or int(sizes.sum()) < _LEAST_BYTES * len(sizes):
        return False
    # A carriage return belongs to no record, and copying a record includes the one byte after it.
    return bool((block.buf[end[end < len(block.buf)]] == _LINE_FEED).all())


class IndexedBatch(NamedTuple):
    """One record batch of the earlier pass. `places`: where in the file at `path` each column begins."""

    path: str
    first: tuple[int, int]  # file and offset of its first record
    n_rows: int
    places: dict[str, int]


def write_index(folder: str, runs: Sequence[IndexedBatch], name: str = KEPT) -> None:
    """Write an index of where the columns of each record batch are stored (64 bytes per batch).

    `runs` are in the order of the input; `name`: KEPT or DROPPED.
    """
    runs = [run for run in runs if all(column in run.places for column in _READ)]
    paths = list(dict.fromkeys(run.path for run in runs))
    number = {path: i for i, path in enumerate(paths)}
    table = np.empty(len(runs), _RUN)
    for i, run in enumerate(runs):
        table[i] = (*run.first, number[run.path], run.n_rows, *(run.places[column] for column in _READ))
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, f"{name}-paths.json"), "w", encoding="utf-8") as file:
        json.dump(paths, file)
    np.save(os.path.join(folder, f"{name}-runs.npy"), table)


class DroppedWriter:
    """Writes the index of the documents that a pass dropped, 36 bytes each, for `RecordIndex`.

    `add` in the order of the input; `close` writes the index.
    """

    def __init__(self, folder: str) -> None:
        os.makedirs(folder, exist_ok=True)
        self._folder = folder
        self._path = resolve(os.path.join(folder, f"{DROPPED}.bin"))
        self._file = open_to_write(self._path)
        self._runs: list[IndexedBatch] = []
        self._offset = 0

    def add(self, columns: Mapping[str, Array]) -> None:
        """Append `file`, `offset` and COLUMNS, all of one length."""
        n = len(columns["file"])
        if not n:
            return
        places = {}
        for name in _READ:
            places[name] = self._offset
            data = np.ascontiguousarray(columns[name], _TYPES[name]).tobytes()
            self._file.write(data)
            self._offset += len(data)
        first = (int(columns["file"][0]), int(columns["offset"][0]))
        self._runs.append(IndexedBatch(self._path, first, n, places))

    def close(self) -> None:
        self._file.close()
        write_index(self._folder, self._runs, DROPPED)


@dataclass
class RecordSpans:
    """Consecutive records of a file, each followed by a line feed."""

    start: Array
    end: Array  # without the line feed
    identity: tuple[Array, Array]


class RecordIndex:
    """Reads what `write_index` wrote, of the documents that were kept and, if written, of those that were dropped.

    Empty where the folder is not visible, for example on another node.
    """

    def __init__(self, folder: str) -> None:
        names = [n for n in (KEPT, DROPPED) if os.path.exists(os.path.join(folder, f"{n}-runs.npy"))]
        self._indexes = [_IndexFile(folder, name) for name in names]

    def find(self, file: int, start: int, end: int, size: int) -> RecordSpans | None:
        """Return the records that begin in [start, end) of a file of `size` bytes.

        Returns None if they must be located by reading the file.
        """
        end = min(end, size)
        if not self._indexes:
            return None
        try:
            columns = _in_order([index.near(file, start, end) for index in self._indexes])
        except (OSError, FormatError):
            return None
        first, last = np.searchsorted(columns["offset"], [start, end]).tolist()
        offsets, sizes = columns["offset"][:last], columns["record_bytes"][:last].astype(np.int64)
        stop = offsets + sizes  # of each record; its line feed is here
        before = int(stop[first - 1]) + 1 if first else 0
        covers = (
            first < last and int(offsets[first]) == before and bool((stop[first:-1] + 1 == offsets[first + 1 :]).all())
        )
        if not covers or not end <= int(stop[-1]) + 1 <= size:
            return None
        return RecordSpans(
            offsets[first:],
            stop[first:],
            (columns["record_hi"][first:last].copy(), columns["record_lo"][first:last].copy()),
        )


class _IndexFile:
    """One index, and the record batch that was read last."""

    def __init__(self, folder: str, name: str) -> None:
        self._runs = open_npy(os.path.join(folder, f"{name}-runs.npy"))
        with open(os.path.join(folder, f"{name}-paths.json"), encoding="utf-8") as file:
            self._paths: list[str] = json.load(file)
        self._read: dict[int, dict[str, Array]] = {}

    def near(self, file: int, start: int, end: int) -> dict[str, Array]:
        """Return columns of the record batches with the records of a range, and the one before them."""
        first = max(0, self._runs.search((file, start), right=True, key=_first_place) - 2)
        last = self._runs.search((file, end), key=_first_place)
        batches = {i: self._read[i] if i in self._read else self._columns(i) for i in range(first, last)}
        self._read = dict(list(batches.items())[-1:])  # consecutive small files are in one
        parts = [{name: np.empty(0, kind) for name, kind in _TYPES.items()}]
        for columns in batches.values():
            a, b = np.searchsorted(columns["file"], [file, file + 1]).tolist()
            parts.append({name: values[a:b] for name, values in columns.items()})
        return {name: np.concatenate([part[name] for part in parts]) for name in _READ}

    def _columns(self, i: int) -> dict[str, Array]:
        run = self._runs[i]
        columns = {name: np.empty(int(run["n_rows"]), _TYPES[name]) for name in _READ}
        for name, values in columns.items():
            read_into(self._paths[int(run["path"])], int(run[f"at_{name}"]), values)
        return columns


def _in_order(parts: Sequence[dict[str, Array]]) -> dict[str, Array]:
    """Join columns of several indexes, ascending by offset."""
    parts = [part for part in parts if len(part["offset"])] or list(parts[:1])
    if len(parts) == 1:
        return parts[0]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in _READ}
    order = np.argsort(joined["offset"], kind="stable")
    return {name: values[order] for name, values in joined.items()}


def _first_place(run: Any) -> tuple[int, int]:
    return int(run["file"]), int(run["offset"])
