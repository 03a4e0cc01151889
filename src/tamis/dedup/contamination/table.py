"""The table of contaminated documents, by position (dedup/position_table.py), for the pass that removes or cuts.

`item`, `share`, `words`, `start`, `end`: the worst overlap of the document; `n_items`: those it is contaminated by;
`first`, `last`: its spans are spans[first:last), pairs of bytes in `spans`. `excepted.npy`: the n-grams that do not
count, ascending.
"""

from __future__ import annotations

import os
from typing import Any

from numpy.typing import NDArray

from tamis.formats.scratch.stored_arrays import open_npy

Array = NDArray[Any]
COLUMNS = {
    "file": "<i4",
    "offset": "<i8",
    "item": "<i8",
    "share": "<f4",
    "words": "<u4",
    "start": "<u4",
    "end": "<u4",
    "n_items": "<u4",
    "first": "<i8",
    "last": "<i8",
    "spans": "<u4",
}


def spans_of(folder: str, first: Array, last: Array) -> list[Array]:
    """Return the spans to cut, as rows of (start, end), of documents of a table."""
    stored = open_npy(os.path.join(folder, "spans.npy"))
    return [stored.read(2 * int(a), 2 * int(b)).reshape(-1, 2) for a, b in zip(first, last, strict=True)]
