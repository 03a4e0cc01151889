"""The table of what is cut: one row per document that changes, in the order of the input, and the numbers of its units.

A PlaceTable (decisions.py). `file`, `offset`: the place of the document; `first`, `end`: its numbers are cuts[first:end).
Written in pieces, read by range.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tamis.dedup.removal import rows_of_table
from tamis.formats.scratch.stored_arrays import npy

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

COLUMNS = {"file": "<i4", "offset": "<i8", "first": "<i8", "end": "<i8", "cuts": "<u4"}


def cuts_of(folder: str, files: Array, offsets: Array) -> tuple[Array, list[Array]]:
    """(rows, numbers): which of these documents (in the order of the input) are cut, and the units of each."""
    import numpy as np

    rows: list[Array] = [np.empty(0, np.int64)]
    numbers: list[Array] = []
    for file in np.unique(files).tolist():
        mine = np.flatnonzero(files == file)
        found, (first, end) = rows_of_table(folder, file, offsets[mine], ("first", "end"))
        if len(found):
            some = npy(os.path.join(folder, "cuts.npy")).read(first[0], end[-1])
            rows.append(mine[found])
            numbers += [some[a - first[0] : b - first[0]] for a, b in zip(first, end, strict=True)]
    return np.concatenate(rows), numbers
