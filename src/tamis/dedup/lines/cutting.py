"""The last pass of line deduplication: documents without the lines or paragraphs that occurred before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tamis._lazy import np, pa, pc
from tamis.dedup.lines.hashing import check_count, check_unit
from tamis.dedup.removal import ByPlace, without
from tamis.tasks import DocumentBatch

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


@dataclass(repr=False)
class CutUnits(ByPlace):
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
    columns_in = ("text_field",)
    columns_out = ("cut_field",)

    def __post_init__(self) -> None:
        check_unit(self.name, self.unit)
        check_count(self.name, "min_left_chars", self.min_left_chars, 1)
        super().__post_init__()

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        from tamis.dedup.lines.table import cut_out, cuts_of

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
        values = [
            {f"{self.unit}s_cut": int(n_cut[k]), f"{self.unit}s": int(n_units[k]), "chars_left": int(n_left[k])}
            for k in little
        ]
        rule = f"repeated_{self.unit}s"
        self._note_drops(batch.serial[rows[little]], rule, values, {"min_left_chars": self.min_left_chars})
        return without(edited, rows[little])

    def _told(self, batch: DocumentBatch, rows: Array, numbers: list[Array]) -> pa.Array:
        """Return a list of numbers for each document that is cut, null for the others."""
        sizes = np.zeros(batch.num_items, np.int64)
        sizes[rows] = [len(n) for n in numbers]
        offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]))
        values = pa.array(np.concatenate([np.empty(0, np.int64), *numbers]).astype(np.int64))
        return pa.LargeListArray.from_arrays(offsets, values, mask=pa.array(sizes == 0))
