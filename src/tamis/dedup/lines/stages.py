"""The stages of line deduplication: keys of lines or paragraphs in the first pass, and cutting in the last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tamis._lazy import np, pa, pc
from tamis.dedup.normalization import MODES as TEXT_MODES
from tamis.dedup.normalization import NORMALIZATION_VERSION
from tamis.dedup.stages import PositionTableStage, without
from tamis.errors import UsageError, check_choice
from tamis.sizes import check_integer
from tamis.stages.base import ProcessingStage
from tamis.stages.traits import StageTraits
from tamis.tasks import DocumentBatch

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

UNITS = ("line", "paragraph")
MODES = {
    **TEXT_MODES,
    "ccnet": "letters and digits only, in normal form KD without accents, case-folded, every digit 0",
}
KEYS_VERSION = 1000 + NORMALIZATION_VERSION


@dataclass(repr=False)
class UnitHashes(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Replaces documents by records: `file`, `offset`, `length`, `n_units`, and packed `keys` and `numbers`.

    `length` is the bytes of the text, -1 for none.

    `keys` holds 8 bytes for each unit that has a key, `numbers` 4 bytes with its number in the document: 12 bytes a
    unit.
    """

    text_field: str = "text"
    unit: str = "line"
    normalize_text: str = "casefold"
    min_chars: int = 20
    name: str = "unit_hashes"
    version: int = KEYS_VERSION
    columns_in = ("text_field",)

    def __post_init__(self) -> None:
        check_unit(self.name, self.unit)
        if self.normalize_text not in MODES:
            modes = "; ".join(f"{name}: {what}" for name, what in MODES.items())
            raise UsageError(f"{self.name}: normalize_text must be one of {modes}; got {self.normalize_text!r}")
        check_count(self.name, "min_chars", self.min_chars, 1)

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        from tamis.dedup.keys import position_columns, record_batch
        from tamis.dedup.lines.keys import UnitKeys
        from tamis.dedup.lines.units import split_units
        from tamis.kernels.buffers import string_buffers

        texts = batch.texts(self.text_field)
        length = np.array(pc.fill_null(pc.binary_length(texts), -1).to_numpy(zero_copy_only=False), np.int64)
        parts = string_buffers(pc.fill_null(texts, "") if texts.null_count else texts)
        n_units, n_keys = np.zeros(batch.num_items, np.uint32), np.zeros(batch.num_items, np.int64)
        keys, numbers = [np.empty(0, np.uint64)], [np.empty(0, np.uint32)]
        of = UnitKeys(self.normalize_text, self.min_chars).of
        for units in split_units(parts, self.unit):
            which, hashes = of(parts.data, units)
            keys.append(hashes)
            numbers.append(units.number[which].astype(np.uint32))
            first, last = int(units.row[0]), int(units.row[-1])
            n_keys[first : last + 1] += np.bincount(units.row[which] - first, minlength=last + 1 - first)
            ends = np.append(np.flatnonzero(np.diff(units.row)), len(units.row) - 1)
            n_units[first : last + 1] = units.number[ends] + 1
        n_units[length < 0] = 0
        columns = position_columns(batch) | {"length": length, "n_units": n_units}
        offsets = np.concatenate([[0], np.cumsum(n_keys)])
        records = record_batch(batch, columns)
        for name, values in (("keys", np.concatenate(keys)), ("numbers", np.concatenate(numbers))):
            at, data = pa.py_buffer(offsets * values.itemsize), pa.py_buffer(values)
            records = records.with_column(
                name, pa.LargeBinaryArray.from_buffers(pa.large_binary(), batch.num_items, [None, at, data])
            )
        return records.select([*columns, "keys", "numbers"])


def check_unit(where: str, unit: Any) -> None:
    check_choice(f"{where}: unit", unit, UNITS)


def check_count(where: str, name: str, value: Any, low: int) -> None:
    check_integer(value, f"{where}: {name}", low)


@dataclass(repr=False)
class CutUnits(PositionTableStage):
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
    traits: ClassVar[StageTraits] = StageTraits(removes_duplicates=True)
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
                batch
                if self.cut_field is None
                else batch.with_column(self.cut_field, self._cut_column(batch, rows, numbers))
            )
        texts = batch.texts(self.text_field)
        before = texts.take(rows)
        after, n_units = cut_out(before, numbers, self.unit)
        edited = batch.with_texts(self.text_field, after, rows)
        if self.cut_field is not None:
            edited = edited.with_column(self.cut_field, self._cut_column(batch, rows, numbers))
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

    def _cut_column(self, batch: DocumentBatch, rows: Array, numbers: list[Array]) -> pa.Array:
        """Return a list of numbers for each document that is cut, null for the others."""
        sizes = np.zeros(batch.num_items, np.int64)
        sizes[rows] = [len(n) for n in numbers]
        offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]))
        values = pa.array(np.concatenate([np.empty(0, np.int64), *numbers]).astype(np.int64))
        return pa.LargeListArray.from_arrays(offsets, values, mask=pa.array(sizes == 0))
