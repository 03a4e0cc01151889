"""DocumentJoiner: joins segments into documents."""

from __future__ import annotations

import numbers
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from tamis._dataclasses import dataclass
from tamis._lazy import np, pa
from tamis.errors import PipelineError, UsageError
from tamis.stages.base import ALL_BATCHES, ProcessingStage
from tamis.tasks import OTHER, DocumentBatch

if TYPE_CHECKING:
    from pyarrow import Array

Row = tuple[int, int]  # number of a batch, position in it


@dataclass
class _Joined:
    """A document to assemble: its segments in order, its length and its new number."""

    rows: list[Row]
    length: float = 0
    number: int = 0


@dataclass
class _Columns:
    """The columns of one batch that joining reads: texts, and Python values of the other fields."""

    texts: Array
    ids: list[Any]
    id_kinds: list[int]
    has_other_text: list[bool]  # the text is not a string
    segments: list[Any]
    lengths: list[Any]


@dataclass(repr=False)
class DocumentJoiner(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Joins the documents of one partition with the same `document_id_field`, in the order of `segment_id_field`.

    All other fields are those of the first segment, and so is the position of the document. With `max_length`, segments
    are joined while the sum of `length_field` plus one for each separator does not exceed it; the next segment starts
    another document, and segment ids are numbered anew. A segment whose text is null adds nothing; one without an id,
    or whose text is not a string, is not joined.
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
    columns_out = ("text_field", "document_id_field", "length_field")

    # Segments may be in any batch of a partition, which has several if its files have different schemas.
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
        """Return each document in the batch of its first segment, in the order of first appearance."""
        for task in tasks:
            self._check_task(task)
        columns = [self._columns(batch) for batch in tasks]
        per_batch: list[list[_Joined]] = [[] for _ in tasks]
        for rows in self._groups(columns):
            for document in self._parts(columns, rows):
                per_batch[document.rows[0][0]].append(document)
        return [self._assemble(batch, documents, columns) for batch, documents in zip(tasks, per_batch, strict=True)]

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
                is_plain = isinstance(value, (str, int, float)) and not isinstance(value, bool)
                key = (kind, value if is_plain else repr(value))
                is_alone = value is None or c.has_other_text[i]
                groups.setdefault(("alone", k, i) if is_alone else key, []).append((k, i))
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

    def _assemble(self, batch: DocumentBatch, documents: list[_Joined], columns: Sequence[_Columns]) -> DocumentBatch:
        """Return the documents whose first segment is in this batch."""
        joined = [d for d in documents if len(d.rows) > 1]
        if not joined and len(documents) == batch.num_items:
            return self._numbered(batch, sorted(documents, key=lambda d: d.rows))
        result = batch.take(np.array([d.rows[0][1] for d in documents], np.int64))
        if not joined:
            return self._numbered(result, documents)
        mask = np.array([len(d.rows) > 1 for d in documents])
        # In the ledger a joined document is a new one that replaces its segments, though at the position of the first.
        result = result.renumbered(np.where(mask, -1, result.serial))
        values: dict[str, list[Any]] = {self.text_field: [self._text(d, columns) for d in joined]}
        if self.length_field is not None:
            values[self.length_field] = [d.length for d in joined]
        for name, column in values.items():
            result = result.with_values(name, mask, column)
        return self._numbered(result, documents)

    def _numbered(self, batch: DocumentBatch, documents: list[_Joined]) -> DocumentBatch:
        if self.drop_segment_id_field:
            return batch.without_added(self.segment_id_field)
        if self.max_length is None:
            return batch
        return batch.with_column(self.segment_id_field, pa.array([d.number for d in documents], pa.int64()))

    def _text(self, document: _Joined, columns: Sequence[_Columns]) -> str | None:
        segments = (columns[k].texts[i].as_py() for k, i in document.rows)
        texts = [t for t in segments if t is not None]
        return self.separator.join(texts) if texts else None

    def _number(self, value: Any, field: str) -> float:
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value:
            return value
        raise PipelineError(f"{self.name}: joining needs a number in {field!r}, got {value!r}")
