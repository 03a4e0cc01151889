"""Details of dropped documents in the ledger, in addition to their number: bytes and examples.

Bytes are those of the input records: a line of JSONL without its line break; of a Parquet file, where records have no
bytes of their own, an even share of the decoded table. A document that a stage made has none, and segments of a split
document have those of their record without the text.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.engine.ledger import MAX_EXAMPLES, Example
from tamis.engine.schema import ID_FIELD
from tamis.tasks import DocumentBatch
from tamis.tasks.columns.exact import stored

_MAX_ID_CHARS = 200  # the books travel in every commit; a document with a longer id is named by its place
Array = np.ndarray[Any, Any]


class StageInput:
    """Documents as a stage received them, numbered from 0 over all its batches.

    Nothing is looked up until it is needed.
    """

    def __init__(self, batches: Sequence[DocumentBatch]) -> None:
        self._batches = list(batches)
        # Copies of the batches, not of their data: a stage may put other documents into the very batch it was given.
        self._copies = [b.copy() for b in batches]
        self._first = [0, *accumulate(b.num_items for b in batches)]
        self._sizes: Array | None = None

    @property
    def batches(self) -> list[DocumentBatch]:
        """The batches as they were; those that still are so, themselves, with all that was decoded since."""
        return [g if _is_same(g, c) else c for g, c in zip(self._batches, self._copies, strict=True)]

    def n_bytes(self, serials: Array) -> int:
        if not len(serials):
            return 0
        if self._sizes is None:
            self._sizes = np.concatenate([record_bytes(b) for b in self._copies])
        return int(self._sizes[serials].sum())

    def n_tokens(self, serials: Array, field: str) -> int | None:
        """Return the tokens of some documents, by the field that has their number; None where one has none."""
        counts = [self._numbers(k, serials, field) for k in range(len(self._copies))]
        return None if None in counts else sum(n for n in counts if n is not None)

    def _numbers(self, k: int, serials: Array, field: str) -> int | None:
        """Return the sum of a field over those of the documents that are in one batch; None if it has no numbers."""
        rows = serials[(serials >= self._first[k]) & (serials < self._first[k + 1])] - self._first[k]
        if not len(rows):
            return 0
        values = self._copies[k].column_of(field, rows)
        is_complete = pa.types.is_integer(values.type) and not values.null_count
        return int(pc.sum(values).as_py()) if is_complete else None

    def examples(self, serials: Array, ids: Sequence[str | None] | None = None) -> list[Example]:
        """Return the first of these documents; those that have neither an id nor a position are left out.

        `ids`: of each, where they are known.
        """
        id_of = None if ids is None else dict(zip(serials.tolist(), ids, strict=True))
        if len(serials) > MAX_EXAMPLES:
            serials = np.partition(serials, MAX_EXAMPLES - 1)[:MAX_EXAMPLES]
        by_batch: dict[int, list[int]] = {}
        for serial in sorted(serials.tolist()):
            k = bisect_right(self._first, serial) - 1
            by_batch.setdefault(k, []).append(serial - self._first[k])
        located = []
        for k, rows in by_batch.items():
            first, lineage = self._first[k], self._copies[k].lineage
            names = self._ids(k, rows) if id_of is None else [_short(id_of[first + row]) for row in rows]
            for at, name in zip(rows, names, strict=True):
                file, offset = (-1, -1) if lineage is None else lineage.place(at)
                if name is not None or file >= 0:
                    located.append((file, offset, name))
        return located

    def _ids(self, k: int, rows: list[int]) -> list[str | None]:
        """Return the documents' ids as `tamis why` knows them.

        Read all at once if they are of one kind, else one by one, so that none depends on its neighbours.
        """
        raw = self.batches[k].column_of(ID_FIELD, np.array(rows))  # null where there is none
        if len(rows) > 1 and not _is_text(raw.type) and not pa.types.is_integer(raw.type):
            return [name for row in rows for name in self._ids(k, [row])]
        named = _named(stored(raw))
        return [None] * len(rows) if named is None else [_name(value) for value in named]


def _name(value: Any) -> str | None:
    if not value.is_valid:
        return None
    plain = value if pa.types.is_integer(value.type) or _is_text(value.type) else value.cast(pa.large_string())
    return _short(str(plain.as_py()))


def _short(name: str | None) -> str | None:
    return name if name is not None and 0 < len(name) <= _MAX_ID_CHARS else None


def _is_same(batch: DocumentBatch, copy: DocumentBatch) -> bool:
    """Return True if the batch still holds the documents it was copied with."""
    now, before = batch.lineage, copy.lineage
    return now is None and before is None if now is None or before is None else now.rows is before.rows


def _named(ids: pa.Array) -> pa.Array | None:
    """Return the column if its values are names: texts or numbers; else None.

    Others (dates, lists) may not even be representable in Python.
    """
    kind = ids.type
    return ids if _is_text(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind) else None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def record_bytes(batch: DocumentBatch) -> Array:
    """Return the bytes of the record that each row comes from."""
    lineage = batch.lineage
    return np.zeros(batch.num_items, np.int64) if lineage is None else lineage.sizes()
