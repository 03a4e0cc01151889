"""Tables of facts about some documents by position (file and offset).

Written by the solver, read by workers a range at a time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tamis.formats.scratch.stored_arrays import NpyWriter, StoredArray, open_npy
from tamis.stores.scratch_files import resolve

Array = NDArray[Any]


class PositionTable:
    """Columns as raw .npy files, written a part at a time, in input order.

    `folder`: its location if scratch is local (see stores/scratch_files.py for buckets). `starts`, the first row of
    each file, is written last: a table without it is incomplete.
    """

    def __init__(self, folder: str, columns: dict[str, str]) -> None:
        self._folder = resolve(folder)
        if self._folder == folder:
            os.makedirs(folder, exist_ok=True)
        self._files = {name: NpyWriter(self._path(name), kind) for name, kind in columns.items()}
        self._by_file = np.zeros(0, np.int64)

    def add(self, **columns: Array) -> None:
        for name, values in columns.items():
            self._files[name].append(values)
        counts = (
            np.bincount(columns["file"], minlength=len(self._by_file)) if len(columns["file"]) else self._by_file * 0
        )
        counts[: len(self._by_file)] += self._by_file
        self._by_file = counts

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        with NpyWriter(self._path("starts"), "<i8") as starts:
            starts.append(np.concatenate([[0], np.cumsum(self._by_file)]).astype(np.int64))

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name + ".npy")


def listed_rows(
    folder: str, files: Array, offsets: Array, names: Sequence[str] = ()
) -> tuple[NDArray[np.int64], list[Array]]:
    """Return which of these documents (in input order) a table lists, and their wanted columns."""
    rows: list[Array] = [np.empty(0, np.int64)]
    columns = [[_column(folder, name).read(0, 0)] for name in names]
    for file in np.unique(files).tolist():
        mine = np.flatnonzero(files == file)
        listed, values = rows_of_table(folder, file, offsets[mine], names)
        rows.append(mine[listed])
        for column, part in zip(columns, values, strict=True):
            column.append(part)
    return np.concatenate(rows), [np.concatenate(column) for column in columns]


def rows_of_table(
    folder: str, file: int, offsets: Array, names: Sequence[str] = ()
) -> tuple[NDArray[np.int64], list[Array]]:
    """Return which of these offsets (ascending, of one file) a table lists, and their wanted columns."""
    starts = _column(folder, "starts")
    if file < 0 or file + 1 >= len(starts) or not len(offsets):
        return np.empty(0, np.int64), [_column(folder, name).read(0, 0) for name in names]
    first, last = int(starts[file]), int(starts[file + 1])
    places = _column(folder, "offset")
    a = places.search(offsets.min(), first, last)
    b = places.search(offsets.max(), a, last, right=True)
    listed = places.read(a, b)  # the range of this batch
    rows = np.flatnonzero(np.isin(offsets, listed))
    indexes = np.searchsorted(listed, offsets[rows])
    return rows, [_column(folder, name).read(a, b)[indexes] for name in names]


def _column(folder: str, name: str) -> StoredArray:
    return open_npy(os.path.join(folder, name + ".npy"))
