"""The last pass of line deduplication: documents without the lines or paragraphs that occurred before."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tamis.dedup.lines.hashing import check_count
from tamis.dedup.lines.table import cuts_of
from tamis.dedup.lines.units import check_unit, split_units
from tamis.errors import UsageError
from tamis.stages.base import ProcessingStage
from tamis.tasks import DocumentBatch

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Array = np.ndarray[Any, Any]


@dataclass(repr=False)
class CutUnits(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Cuts the units of a table (table.py) out of the texts. What is not cut stays as it is, byte for byte.

    A document of which fewer than `min_left_chars` characters are left (whitespace at the ends not counted) is dropped.
    `cut_field` gets the numbers of the units cut, null where nothing was.
    """

    table: str
    text_field: str = "text"
    unit: str = "line"
    min_left_chars: int = 1
    cut_field: str | None = None
    name: str = "cut_units"

    def __post_init__(self) -> None:
        check_unit(self.name, self.unit)
        check_count(self.name, "min_left_chars", self.min_left_chars, 1)
        if not os.path.isfile(os.path.join(self.table, "starts.npy")):
            raise UsageError(f"{self.name}: {self.table} is no removal table; run the deduplication that makes it")

    def inputs(self) -> Any:
        return ["data"], [self.text_field]

    def outputs(self) -> Any:
        return ["data"], [self.cut_field] if self.cut_field is not None else []

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        import numpy as np
        import pyarrow.compute as pc

        rows, numbers = cuts_of(self.table, *batch.places())
        if not len(rows):
            return (
                batch if self.cut_field is None else batch.with_column(self.cut_field, self._told(batch, rows, numbers))
            )
        texts = batch.texts(self.text_field)
        before = texts.take(rows)
        after, n_units = cut_out(before, numbers, self.unit)
        edited = batch.with_texts(self.text_field, after, rows)
        if self.cut_field is not None:
            edited = edited.with_column(self.cut_field, self._told(batch, rows, numbers))
        n_left = pc.utf8_length(pc.utf8_trim_whitespace(after)).to_numpy(zero_copy_only=False)
        n_bytes = int(pc.sum(pc.binary_length(before)).as_py()) - int(pc.sum(pc.binary_length(after)).as_py())
        n_cut = np.array([len(n) for n in numbers])
        self._log_metrics({f"{self.unit}s_cut": int(n_cut.sum()), "bytes_cut": n_bytes, "documents_cut": len(rows)})
        little = np.flatnonzero(n_left < self.min_left_chars)
        keep = np.ones(batch.num_items, bool)
        keep[rows[little]] = False
        values = [
            {f"{self.unit}s_cut": int(n_cut[k]), f"{self.unit}s": int(n_units[k]), "chars_left": int(n_left[k])}
            for k in little
        ]
        rule = f"repeated_{self.unit}s"
        self._note_drops(batch.serial[rows[little]], rule, values, {"min_left_chars": self.min_left_chars})
        return edited.filter(keep)

    def _told(self, batch: DocumentBatch, rows: Array, numbers: list[Array]) -> pa.Array:
        """A list of numbers for each document that is cut, null for the others."""
        import numpy as np
        import pyarrow as pa

        sizes = np.zeros(batch.num_items, np.int64)
        sizes[rows] = [len(n) for n in numbers]
        offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]))
        values = pa.array(np.concatenate([np.empty(0, np.int64), *numbers]).astype(np.int64))
        return pa.LargeListArray.from_arrays(offsets, values, mask=pa.array(sizes == 0))


def cut_out(texts: pa.Array, numbers: list[Array], unit: str) -> tuple[pa.Array, Array]:
    """The texts (none null) without these units, and how many units each has.

    What follows a unit up to the next one goes with it. Where the last one goes, so does what follows the last that stays.
    """
    import numpy as np

    from tamis.kernels.buffers import string_array, string_buffers
    from tamis.kernels.records.json_text import copy_spans

    parts = string_buffers(texts)
    n = parts.n_rows
    first = np.concatenate([[0], np.cumsum([len(c) for c in numbers])])
    cuts = np.concatenate([np.empty(0, np.int64), *numbers]).astype(np.int64)
    n_units, open_end = np.zeros(n, np.int64), np.zeros(n, bool)
    spans: list[tuple[Array, Array, Array, Array]] = []  # row, start, stop, end without what follows
    for units in split_units(parts, unit):
        kept = _kept(units, first, cuts)
        opens, closes = kept.copy(), kept.copy()
        other = units.row[1:] != units.row[:-1]
        opens[1:] &= ~kept[:-1] | other
        closes[:-1] &= ~kept[1:] | other
        at = np.flatnonzero(closes)
        spans.append((units.row[at], units.start[opens], units.stop[at], units.end[at]))
        ends = np.append(np.flatnonzero(other), len(kept) - 1)
        n_units[units.row[ends]] = units.number[ends] + 1
        open_end[units.row[units.last & ~kept]] = True
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


def _kept(units: Any, first: Array, cuts: Array) -> Array:
    """Which units of a window stay. `cuts[first[i]:first[i + 1])` are the numbers to go of text i, ascending."""
    import numpy as np

    kept = np.ones(len(units.row), bool)
    low, high = int(units.row[0]), int(units.row[-1])
    # The first unit of each text in this window, and the number it has.
    head = np.concatenate([[0], np.flatnonzero(np.diff(units.row)) + 1])
    after = np.append(head[1:], len(kept))
    mine = cuts[first[low] : first[high + 1]]
    text = np.repeat(np.arange(high + 1 - low), np.diff(first[low : high + 2]))
    at = head[text] + mine - units.number[head][text]
    inside = (at >= head[text]) & (at < after[text])
    kept[at[inside]] = False
    return kept
