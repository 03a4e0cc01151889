"""Segments back into documents."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from tamis.errors import PipelineError, UsageError
from tamis.stages.base import ProcessingStage
from tamis.stages.text.modifiers.fields import plain_column, python_values, text_column
from tamis.tasks import DocumentBatch


@dataclass
class _Joined:
    """Positions of the segments of one document to be, in order, its length and its new number."""

    rows: list[int]
    length: float = 0
    number: int = 0


@dataclass(repr=False)
class DocumentJoiner(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Documents of one batch with the same `document_id_field` become one, in the order of `segment_id_field`.

    All other fields are those of the first segment. With `max_length`, segments are joined as long as the sum of
    `length_field` plus one for each seam does not exceed it; what follows begins another document, and segment ids are
    numbered anew. A segment whose text is null adds nothing; one without an id, or whose text is no text, stays alone.
    """

    separator: str = "\n\n"
    text_field: str = "text"
    segment_id_field: str = "segment_id"
    document_id_field: str = "id"
    drop_segment_id_field: bool = True
    max_length: int | None = None
    length_field: str | None = None
    name: str = "document_joiner"

    def __post_init__(self) -> None:
        if not isinstance(self.separator, str):
            raise UsageError(f"DocumentJoiner(separator=...): expected a string, got {self.separator!r}")
        if (self.max_length is None) != (self.length_field is None):
            raise UsageError("DocumentJoiner: give both max_length and length_field, or neither")

    def inputs(self) -> Any:
        fields = [self.text_field, self.segment_id_field, self.document_id_field]
        return ["data"], fields + ([self.length_field] if self.length_field is not None else [])

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = text_column(batch, self.text_field)
        loose = pc.and_(texts.is_null(), plain_column(batch, self.text_field).is_valid()).to_pylist()
        lengths = python_values(batch, self.length_field) if self.length_field is not None else []
        documents = [d for rows in self._groups(batch, loose) for d in self._parts(lengths, rows)]
        is_joined = np.array([len(d.rows) > 1 for d in documents], bool)
        joined = batch
        if is_joined.any():
            joined = batch.take(np.array([d.rows[0] for d in documents], np.int64))
            column = plain_column(joined, self.text_field)
            kind = texts.type if pa.types.is_null(column.type) else column.type
            made = [self._text([texts[i].as_py() for i in d.rows]) for d in documents if len(d.rows) > 1]
            joined = joined.with_column(
                self.text_field, pc.replace_with_mask(column.cast(kind), pa.array(is_joined), pa.array(made, kind))
            )
            # For the books: a joined document is a new one that replaces its segments, though it lies where the first lay.
            joined._serial = np.where(is_joined, -1, joined.serial)
            if self.length_field is not None:
                old = joined.column(self.length_field)
                sums = pa.array([d.length for d in documents if len(d.rows) > 1], old.type)
                joined = joined.with_column(self.length_field, pc.replace_with_mask(old, pa.array(is_joined), sums))
        if self.drop_segment_id_field:
            return _without(joined, self.segment_id_field)
        if self.max_length is None:
            return joined
        return joined.with_column(self.segment_id_field, pa.array([d.number for d in documents], pa.int64()))

    def _groups(self, batch: DocumentBatch, loose: list[bool]) -> list[list[int]]:
        """Positions of the segments of each document, in order; documents by their first appearance."""
        kinds = batch.kinds(self.document_id_field).tolist()
        ids = python_values(batch, self.document_id_field)
        groups: dict[Hashable, list[int]] = {}
        for i, (kind, value) in enumerate(zip(kinds, ids, strict=True)):
            key = (kind, value if isinstance(value, (str, int, float)) else repr(value))
            groups.setdefault(("alone", i) if value is None or loose[i] else key, []).append(i)
        segments = python_values(batch, self.segment_id_field)
        for rows in groups.values():
            if len(rows) > 1:
                rows.sort(key=lambda i: self._number(segments[i], self.segment_id_field))
        return list(groups.values())

    def _parts(self, lengths: list[Any], rows: list[int]) -> list[_Joined]:
        """The documents that these segments make: one, or as many as `max_length` takes."""
        if self.max_length is None or self.length_field is None:
            return [_Joined(rows)]
        parts: list[_Joined] = []
        for i in rows:
            length = self._number(lengths[i], self.length_field) if len(rows) > 1 else 0
            if parts and parts[-1].length + length + 1 <= self.max_length:
                parts[-1].rows.append(i)
                parts[-1].length += length + 1
            else:
                parts.append(_Joined([i], length, len(parts)))
        return parts

    def _text(self, segments: list[str | None]) -> str | None:
        texts = [s for s in segments if s is not None]
        return self.separator.join(texts) if texts else None

    def _number(self, value: Any, field: str) -> float:
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value:
            return value
        raise PipelineError(f"{self.name}: a document to be joined needs a number in {field!r}, got {value!r}")


def _without(batch: DocumentBatch, field: str) -> DocumentBatch:
    """The batch without a field; a record that never had it keeps its bytes."""
    if batch._origin is None or field not in batch._columns or field in batch._origin.field_names():
        return batch.drop_columns([field])
    child = batch._child()
    del child._columns[field]
    return child
