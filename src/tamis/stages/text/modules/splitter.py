"""One document into its segments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tamis.errors import UsageError
from tamis.stages.base import ProcessingStage
from tamis.tasks import DocumentBatch

if TYPE_CHECKING:
    import numpy as np


@dataclass(repr=False)
class DocumentSplitter(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Every piece of the text between separators becomes a document; all other fields are those of the whole.

    `segment_id_field` numbers the segments from 0. A text without the separator is one segment; so is an empty one, and a
    value that is null or no text.
    """

    separator: str
    text_field: str = "text"
    segment_id_field: str = "segment_id"
    name: str = "document_splitter"

    def __post_init__(self) -> None:
        if not isinstance(self.separator, str) or not self.separator:
            raise UsageError(f"DocumentSplitter(separator=...): expected a string to split at, got {self.separator!r}")

    def inputs(self) -> Any:
        return ["data"], [self.text_field]

    def outputs(self) -> Any:
        return ["data"], [self.segment_id_field]

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        from tamis.formats.exact import replaced

        texts = batch.texts(self.text_field)
        pieces = pc.split_pattern(texts.fill_null(""), pattern=self.separator)
        n_pieces = pieces.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
        at = np.repeat(np.arange(len(texts)), n_pieces)
        first = np.cumsum(n_pieces) - n_pieces
        numbers = np.arange(len(at)) - np.repeat(first, n_pieces)
        split = batch
        if len(at) > len(texts):
            segments = pieces.flatten()
            whole = np.flatnonzero(texts.is_null().to_numpy(zero_copy_only=False))
            if len(whole):  # null, or no text: left as it is
                mask = np.zeros(len(at), bool)
                mask[first[whole]] = True
                segments = replaced(segments, mask, batch.exact_column(self.text_field).take(pa.array(whole)))
            split = _without_texts(batch, self.text_field, n_pieces > 1).take(at)
            split = split.with_column(self.text_field, segments)
        return split.with_column(self.segment_id_field, pa.array(numbers, pa.int64()))


def _without_texts(batch: DocumentBatch, field: str, many: np.ndarray[Any, Any]) -> DocumentBatch:
    """The same documents, over records in which the texts of `many` are empty.

    Every segment refers to the record it came from. With the whole text in it, a document of 250 kB in 5,000 paragraphs would
    take more than a gigabyte as soon as segments are compared with, or handed on together with, their records.
    """
    import numpy as np
    import pyarrow as pa

    from tamis.formats.encode import encode_jsonl
    from tamis.formats.jsonl import JsonlBlock

    child = batch._child()
    child._cache = {}
    child._columns.pop(field, None)
    if not isinstance(batch._origin, JsonlBlock) or batch._rows is None:
        return child
    plain = DocumentBatch.over(batch._origin, batch._rows)
    rest, emptied = np.flatnonzero((batch._rows >= 0) & ~many), np.flatnonzero((batch._rows >= 0) & many)
    parts = [plain.take(rest), plain.take(emptied).with_column(field, pa.array([""] * len(emptied), pa.large_string()))]
    block = JsonlBlock.parse(np.concatenate([encode_jsonl(part).data for part in parts]), [field])
    order = np.concatenate([rest, emptied])
    files, offsets = batch.places()
    block.places = (files[order], offsets[order])
    child._origin, child._rows = block, np.full(len(many), -1, np.int64)
    child._rows[order] = np.arange(len(order))
    child._serial = batch.serial
    return child
