"""The table of what is cut: one row per document that changes, in the order of the input, and the numbers of its units.

And cutting by it.

A PositionTable (position_table.py). `file`, `offset`: the place of the document; `first`, `end`: its numbers are
cuts[first:end). Written in pieces, read by range.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pyarrow as pa

from tamis.dedup.lines.units import Units, split_units
from tamis.dedup.position_table import rows_of_table
from tamis.formats.scratch.stored_arrays import open_npy
from tamis.kernels.buffers import string_array, string_buffers
from tamis.kernels.records.json_text import copy_spans

Array = np.ndarray[Any, Any]
COLUMNS = {"file": "<i4", "offset": "<i8", "first": "<i8", "end": "<i8", "cuts": "<u4"}


def cuts_of(folder: str, files: Array, offsets: Array) -> tuple[Array, list[Array]]:
    """Return (rows, numbers): the documents that are cut, in the order of the input, and the units of each."""
    rows: list[Array] = [np.empty(0, np.int64)]
    numbers: list[Array] = []
    for file in np.unique(files).tolist():
        mine = np.flatnonzero(files == file)
        cuts, (first, end) = rows_of_table(folder, file, offsets[mine], ("first", "end"))
        if len(cuts):
            some = open_npy(os.path.join(folder, "cuts.npy")).read(first[0], end[-1])
            rows.append(mine[cuts])
            ranges = zip((first - first[0]).tolist(), (end - first[0]).tolist(), strict=True)
            numbers += [some[a:b] for a, b in ranges]
    return np.concatenate(rows), numbers


def cut_out(texts: pa.Array, numbers: list[Array], unit: str) -> tuple[pa.Array, Array]:
    """Return the texts (none null) without these units, and how many units each has.

    What follows a unit up to the next one is removed with it. Where the last unit is removed, so is what
    follows the last one that stays.
    """
    parts = string_buffers(texts)
    n = parts.n_rows
    first = np.concatenate([[0], np.cumsum([len(c) for c in numbers])])
    cuts = np.concatenate([np.empty(0, np.int64), *numbers]).astype(np.int64)
    n_units, open_end = np.zeros(n, np.int64), np.zeros(n, bool)
    spans: list[tuple[Array, Array, Array, Array]] = []  # row, start, stop, end without what follows
    for units in split_units(parts, unit):
        rest = _kept_units(units, first, cuts)
        opens, closes = rest.copy(), rest.copy()
        other = units.row[1:] != units.row[:-1]
        opens[1:] &= ~rest[:-1] | other
        closes[:-1] &= ~rest[1:] | other
        indices = np.flatnonzero(closes)
        spans.append((units.row[indices], units.start[opens], units.stop[indices], units.end[indices]))
        ends = np.append(np.flatnonzero(other), len(rest) - 1)
        n_units[units.row[ends]] = units.number[ends] + 1
        open_end[units.row[units.last & ~rest]] = True
    row, start, stop, end = (
        np.concatenate([s[k] for s in spans]) if spans else np.empty(0, np.int64) for k in range(4)
    )
    if len(row):
        final = np.append(row[1:] != row[:-1], True) & open_end[row]
        stop = np.where(final, end, stop)
    size = stop - start
    offsets = np.concatenate([[0], np.cumsum(np.bincount(row, size, n).astype(np.int64))])
    out = np.empty(int(offsets[-1]), np.uint8)
    copy_spans(parts.data, start, size, out, np.cumsum(size) - size)
    return string_array(offsets, out), n_units


def _kept_units(units: Units, first: Array, cuts: Array) -> Array:
    """Return a mask of the units of a window that stay.

    `cuts[first[i]:first[i + 1])` are the numbers of the units to remove from text i, ascending.
    """
    is_kept = np.ones(len(units.row), bool)
    low, high = int(units.row[0]), int(units.row[-1])
    # The first unit of each text in this window, and the number it has.
    head = np.concatenate([[0], np.flatnonzero(np.diff(units.row)) + 1])
    after = np.append(head[1:], len(is_kept))
    mine = cuts[first[low] : first[high + 1]]
    text = np.repeat(np.arange(high + 1 - low), np.diff(first[low : high + 2]))
    at = head[text] + mine - units.number[head][text]
    inside = (at >= head[text]) & (at < after[text])
    is_kept[at[inside]] = False
    return is_kept
