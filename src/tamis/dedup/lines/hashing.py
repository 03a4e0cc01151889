"""The first pass of line deduplication: a key for every line or paragraph that is long enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tamis._lazy import np, pa, pc
from tamis.dedup.normalization import MODES as TEXT_MODES
from tamis.dedup.normalization import NORMALIZATION_VERSION
from tamis.errors import UsageError, check_choice
from tamis.sizes import check_integer
from tamis.stages.base import ProcessingStage
from tamis.tasks import DocumentBatch

UNITS = ("line", "paragraph")
MODES = {
    **TEXT_MODES,
    "ccnet": "letters and digits only, in normal form KD without accents, case-folded, every digit 0",
}
KEYS_VERSION = 1000 + NORMALIZATION_VERSION


@dataclass(repr=False)
class UnitHashes(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Replaces documents by records: `file`, `offset`, `length` (bytes of text, -1 for none), `n_units`, and packed `keys` and `numbers`.

    `keys` holds 8 bytes for each unit that has a key, `numbers` 4 bytes with its number in the document: 12 bytes a unit.
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
            known = "; ".join(f"{name}: {what}" for name, what in MODES.items())
            raise UsageError(f"{self.name}: normalize_text must be one of {known}; got {self.normalize_text!r}")
        check_count(self.name, "min_chars", self.min_chars, 1)

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        from tamis.dedup.keys import place_columns, record_batch
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
            which, found = of(parts.data, units)
            keys.append(found)
            numbers.append(units.number[which].astype(np.uint32))
            first, last = int(units.row[0]), int(units.row[-1])
            n_keys[first : last + 1] += np.bincount(units.row[which] - first, minlength=last + 1 - first)
            ends = np.append(np.flatnonzero(np.diff(units.row)), len(units.row) - 1)
            n_units[first : last + 1] = units.number[ends] + 1
        n_units[length < 0] = 0
        columns = place_columns(batch) | {"length": length, "n_units": n_units}
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
