"""Segments back into documents."""

from __future__ import annotations

import numbers
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tamis._lazy import np, pa
from tamis.errors import PipelineError, UsageError
from tamis.stages.base import ALL_BATCHES, ProcessingStage
from tamis.tasks import OTHER, DocumentBatch

if TYPE_CHECKING:
    from pyarrow import Array

Row = tuple[int, int]  # number of a batch, position in it


@dataclass
class _Joined:
    """The segments of one document to be, in order, its length and its new number."""

    rows: list[Row]
    length: float = 0
    number: int = 0


@dataclass
class _Columns:
    """What is looked at of one batch: texts, and Python values of the other fields."""

    texts: Array
    ids: list[Any]
    id_kinds: list[int]
    loose: list[bool]  # a value that is no text
    segments: list[Any]
    lengths: list[Any]


@dataclass(repr=False)
class DocumentJoiner(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Documents of one partition with the same `document_id_field` become one, in the order of `segment_id_field`.

    All other fields are those of the first segment, and so is the place of the document. With `max_length`, segments are
    joined as long as the sum of `length_field` plus one for each seam does not exceed it; what follows begins another
    document, and segment ids are numbered anew. A segment whose text is null adds nothing; one without an id, or whose text
    is no text, stays alone.
    """

    separator: str = "\n\n"
    text_field: str = "text"
    segment_id_field: str = "segment_id"
    document_id_field: str = "id"
    drop_segment_id_field: bool = True
    max_length: int | None = None
    length_field: str | None = None
    name: str = "document_joiner"
    columns_in = ("text_field", "segment_id_field", "document_id_field", "length_field")

    # A partition may be several batches (files of different schemas): segments are looked for in all.
    batch_size = ALL_BATCHES

    def __post_init__(self) -> None:
        if not isinstance(self.separator, str):
            raise UsageError(f"DocumentJoiner(separator=...): expected a string, got {self.separator!r}")
        if (self.max_length is None) != (self.length_field is None):
            raise UsageError("DocumentJoiner: give both max_length and length_field, or neither")
        limit: Any = self.max_length
        is_number = isinstance(limit, numbers.Real) and not isinstance(limit, bool)
        if limit is not None and not (is_number and limit > 0):
            raise UsageError(f"DocumentJoiner: max_length must be a number above 0, or None, got {limit!r}")

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        return self.process_batch([batch])[0]

    def process_batch(self, tasks: list[DocumentBatch]) -> list[DocumentBatch]:
        """Documents come out in the batch that holds their first segment, by their first appearance."""
        for task in tasks:
            if not self.validate_input(task):
                raise PipelineError(f"stage {self.name!r}: {self._missing_attributes(task)}")
        columns = [self._columns(batch) for batch in tasks]
        homes: list[list[_Joined]] = [[] for _ in tasks]
        for rows in self._groups(columns):
            for document in self._parts(columns, rows):
                homes[document.rows[0][0]].append(document)
        return [self._assembled(batch, documents, columns) for batch, documents in zip(tasks, homes, strict=True)]

    def _columns(self, batch: DocumentBatch) -> _Columns:
        return _Columns(
            batch.texts(self.text_field),
            batch.values(self.document_id_field),
            batch.kinds(self.document_id_field).tolist(),
            (batch.kinds(self.text_field) == OTHER).tolist(),
            batch.values(self.segment_id_field),
            batch.values(self.length_field) if self.length_field is not None else [],
        )

    def _groups(self, columns: Sequence[_Columns]) -> list[list[Row]]:
        """Return the segments of each document, in order; documents by their first appearance."""
        groups: dict[Hashable, list[Row]] = {}
        for k, c in enumerate(columns):
            for i, (kind, value) in enumerate(zip(c.id_kinds, c.ids, strict=True)):
                plain = isinstance(value, (str, int, float)) and not isinstance(value, bool)
                key = (kind, value if plain else repr(value))
                alone = value is None or c.loose[i]
                groups.setdefault(("alone", k, i) if alone else key, []).append((k, i))
        for rows in groups.values():
            if len(rows) > 1:
                rows.sort(key=lambda r: self._number(columns[r[0]].segments[r[1]], self.segment_id_field))
        return list(groups.values())

    def _parts(self, columns: Sequence[_Columns], rows: list[Row]) -> list[_Joined]:
        """Join these segments into documents: one, or as many as `max_length` requires."""
        if self.max_length is None or self.length_field is None:
            return [_Joined(rows)]
        parts: list[_Joined] = []
        for k, i in rows:
            length = self._number(columns[k].lengths[i], self.length_field) if len(rows) > 1 else 0
            if parts and parts[-1].length + length + 1 <= self.max_length:
                parts[-1].rows.append((k, i))
                parts[-1].length += length + 1
            else:
                parts.append(_Joined([(k, i)], length, len(parts)))
        return parts

    def _assembled(self, batch: DocumentBatch, documents: list[_Joined], columns: Sequence[_Columns]) -> DocumentBatch:
        """Return the documents whose first segment is in this batch."""
        joined = [d for d in documents if len(d.rows) > 1]
        if not joined and len(documents) == batch.num_items:
            return self._numbered(batch, sorted(documents, key=lambda d: d.rows))
        made = batch.take(np.array([d.rows[0][1] for d in documents], np.int64))
        if not joined:
            return self._numbered(made, documents)
        mask = np.array([len(d.rows) > 1 for d in documents])
        # For the books: a joined document is a new one that replaces its segments, though it lies where the first lay.
        made = made.renumbered(np.where(mask, -1, made.serial))
        values: dict[str, list[Any]] = {self.text_field: [self._text(d, columns) for d in joined]}
        if self.length_field is not None:
            values[self.length_field] = [d.length for d in joined]
        for name, given in values.items():
            made = made.with_values(name, mask, given)
        return self._numbered(made, documents)

    def _numbered(self, batch: DocumentBatch, documents: list[_Joined]) -> DocumentBatch:
        if self.drop_segment_id_field:
            return batch.without_added(self.segment_id_field)
        if self.max_length is None:
            return batch
        return batch.with_column(self.segment_id_field, pa.array([d.number for d in documents], pa.int64()))

    def _text(self, document: _Joined, columns: Sequence[_Columns]) -> str | None:
        found = (columns[k].texts[i].as_py() for k, i in document.rows)
        texts = [t for t in found if t is not None]
        return self.separator.join(texts) if texts else None

    def _number(self, value: Any, field: str) -> float:
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value:
            return value
        raise PipelineError(f"{self.name}: a document to be joined needs a number in {field!r}, got {value!r}")
