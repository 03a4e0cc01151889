"""The table of what is cut: one row per document that changes, in the order of the input, and the numbers of its units.

A folder of .npy files. `file`, `offset`: the place of the document; `first`, `end`: its numbers are cuts[first:end). `starts`, the
first row of each file, is written last: a table without it is not whole. Written in pieces, read by range.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

from tamis.dedup.removal import rows_of_table
from tamis.formats.scratch.stored_arrays import NpyWriter, npy

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_KINDS = {"file": "<i4", "offset": "<i8", "first": "<i8", "end": "<i8", "cuts": "<u4"}


class CutTable:
    """Writes a table."""

    def __init__(self, folder: str, n_files: int) -> None:
        import numpy as np

        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        self._folder = folder
        self._columns = {name: NpyWriter(_path(folder, name), kind) for name, kind in _KINDS.items()}
        self._rows_of = np.zeros(n_files, np.int64)

    def add(self, files: Array, offsets: Array, n_cut: Array, cuts: Array) -> None:
        """More documents: places, how many units of each are cut (at least one), and their numbers."""
        import numpy as np

        ends = self._columns["cuts"].n + np.cumsum(n_cut)
        for name, values in (
            ("file", files),
            ("offset", offsets),
            ("first", ends - n_cut),
            ("end", ends),
            ("cuts", cuts),
        ):
            self._columns[name].append(values)
        self._rows_of += np.bincount(files, minlength=len(self._rows_of))

    def close(self) -> None:
        import numpy as np

        for column in self._columns.values():
            column.close()
        np.save(_path(self._folder, "starts"), np.concatenate([[0], np.cumsum(self._rows_of)]))


def cuts_of(folder: str, files: Array, offsets: Array) -> tuple[Array, list[Array]]:
    """(rows, numbers): which of these documents (in the order of the input) are cut, and the units of each."""
    import numpy as np

    rows: list[Array] = [np.empty(0, np.int64)]
    numbers: list[Array] = []
    for file in np.unique(files).tolist():
        mine = np.flatnonzero(files == file)
        found, (first, end) = rows_of_table(folder, file, offsets[mine], ("first", "end"))
        if len(found):
            some = npy(_path(folder, "cuts")).read(first[0], end[-1])
            rows.append(mine[found])
            numbers += [some[a - first[0] : b - first[0]] for a, b in zip(first, end, strict=True)]
    return np.concatenate(rows), numbers


def _path(folder: str, name: str) -> str:
    return os.path.join(folder, name + ".npy")
