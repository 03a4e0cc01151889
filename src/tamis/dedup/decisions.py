"""The decisions of a deduplication: which documents are removed, for which ones, and how similar they are.

Decisions are made in the order of keys and needed in the order of documents, and there may be nearly as many as
documents. So they go to files by ranges of document numbers (16 bytes each), and each range is sorted on its own.

They are stored in two forms. For people, `duplicates/*.parquet`: ids (AddId's: number of the file and offset in it),
paths, similarity, group size. For the pass that removes, `removal/*.npy`: the same by position, sorted, so that a
worker reads only its own range.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tamis import files
from tamis._dataclasses import dataclass
from tamis.dedup.position_table import PositionTable
from tamis.dedup.records import Records
from tamis.formats.scratch.spilled import Spilled
from tamis.stores.urls import path_text

_CHUNK = 1 << 18
_ROW = np.dtype([("number", "<u4"), ("kept", "<u4"), ("similarity", "<f4"), ("size", "<u4")])
LARGE = 1 << 20  # groups above this size are counted as if they had it
BYTES_PER_DECISION = 160  # of one range while it is sorted and its positions are looked up


@dataclass
class Decisions:
    """Documents to be removed, by ascending number; `kept` is the document each resembles."""

    number: NDArray[np.uint32]
    kept: NDArray[np.uint32]
    similarity: NDArray[np.float32]
    size: NDArray[np.uint32]  # of the group, the kept document included

    def __len__(self) -> int:
        return len(self.number)


class DecisionFiles:
    """Decisions on disk. Add them in any order; they come back by document number, a range at a time.

    `first`: documents with smaller numbers are those of an index, which stay: decisions on them are ignored.
    """

    def __init__(self, folder: str, n_documents: int, room_bytes: int, fresh: bool = True, first: int = 0) -> None:
        n_ranges = max(1, -(-n_documents * BYTES_PER_DECISION // max(1, room_bytes)))
        self._per_range = -(-max(1, n_documents) // n_ranges)
        self._n_ranges, self._rows = n_ranges, Spilled(folder, fresh)
        self._first = first

    def add(self, number: Any, partners: Any, similarity: Any, size: Any) -> None:
        rows = np.empty(len(number), _ROW)
        rows["number"], rows["kept"], rows["similarity"], rows["size"] = number, partners, similarity, size
        if self._first:
            rows = rows[rows["number"] >= self._first]
        which = rows["number"] // np.uint32(self._per_range)
        for k in np.unique(which).tolist():
            self._rows.add(k, rows if self._n_ranges == 1 else rows[which == k])

    def __len__(self) -> int:
        return sum(self._rows.n_bytes(k) for k in range(self._n_ranges)) // _ROW.itemsize

    def __iter__(self) -> Iterator[Decisions]:
        for k in range(self._n_ranges):
            rows = self._rows.read(k, _ROW)
            if len(rows):
                rows = rows[np.argsort(rows["number"], kind="stable")]
                yield Decisions(*(np.ascontiguousarray(rows[name]) for name in rows.dtype.fields or ()))

    def numbers(self) -> Iterator[NDArray[np.uint32]]:
        """Yield the numbers alone, unsorted, a range at a time."""
        for k in range(self._n_ranges):
            yield self._rows.read(k, _ROW)["number"]


def write_tables(
    decisions: DecisionFiles, records: Records, removal: str, duplicates: str, paths: Sequence[str]
) -> None:
    """Write the removal and the duplicates table: positions of the removed documents and of those kept instead."""
    columns = {"file": "<i4", "offset": "<i8", "kept_file": "<i4", "kept_offset": "<i8", "similarity": "<f4"}
    table = PositionTable(removal, columns)
    os.makedirs(duplicates, exist_ok=True)
    names = pa.array([path_text(p) for p in paths], pa.large_string())
    n_written = 0
    for part in decisions:
        removed = records.gather(["file", "offset"], part.number)
        partner_places = records.gather_any(["file", "offset"], part.kept)
        rows = {
            "file": removed["file"],
            "offset": removed["offset"],
            "kept_file": partner_places["file"],
            "kept_offset": partner_places["offset"],
            "similarity": part.similarity,
        }
        table.add(**rows)
        for first in range(0, len(part), _CHUNK):
            cut = {name: values[first : first + _CHUNK] for name, values in rows.items()}
            cut["group_size"] = part.size[first : first + _CHUNK]
            _write_duplicates(cut, names, os.path.join(duplicates, f"part-{n_written:05d}.parquet"))
            n_written += 1
    table.close()


def write_positions(numbers: Any, records: Records, folder: str) -> None:
    """Write a table of positions alone for documents given by arrays of ascending numbers.

    It also has the lengths of the records where they are known.
    """
    columns = {"file": "<i4", "offset": "<i8"} | ({"record_bytes": "<u4"} if records.have("record_bytes") else {})
    table = PositionTable(folder, columns)
    for part in numbers:
        table.add(**records.gather(list(columns), part))
    table.close()


def _write_duplicates(rows: dict[str, NDArray[Any]], names: pa.Array, path: str) -> None:
    table = pa.table(
        {
            "id": position_ids(rows["file"], rows["offset"]),
            "kept_id": position_ids(rows["kept_file"], rows["kept_offset"]),
            "similarity": pa.array(rows["similarity"]),
            "group_size": pa.array(rows["group_size"]),
            "path": names.take(pa.array(rows["file"])).dictionary_encode(),
            "kept_path": names.take(pa.array(rows["kept_file"])).dictionary_encode(),
        }
    )
    write_table(path, table)


def write_table(path: str, table: pa.Table) -> None:
    """Write a Parquet file for people, atomically: complete or not at all."""
    with files.replacing(path) as file:
        pq.write_table(table, file, compression="zstd")


def position_ids(files: Any, offsets: Any) -> pa.Array:
    """Return the ids that AddId assigns: the number of the file, at least six digits, and the offset."""
    number = pc.utf8_lpad(pa.array(np.array(files)).cast(pa.large_string()), width=6, padding="0")
    return pc.binary_join_element_wise(
        number, pa.array(np.array(offsets)).cast(pa.large_string()), pa.scalar("_", pa.large_string())
    )


def histogram(by_size: Any) -> dict[str, int]:
    """Count the groups that have 2, 3-4, 5-8, ... members; `by_size[n]` groups have n.

    >>> histogram([0, 0, 3, 1, 2, 0, 1])
    {'2': 3, '3-4': 3, '5-8': 1}
    """
    counts: dict[str, int] = {}
    low = high = 2
    while low < len(by_size):
        counts[str(low) if low == high else f"{low}-{high}"] = int(sum(by_size[low : high + 1]))
        low, high = high + 1, high * 2
    return counts
