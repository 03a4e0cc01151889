"""DocumentSplitter: splits documents into segments."""

from __future__ import annotations

from tamis._dataclasses import dataclass
from tamis._lazy import np, pa, pc
from tamis.errors import UsageError
from tamis.stages.base import ProcessingStage
from tamis.tasks import DocumentBatch


@dataclass(repr=False)
class DocumentSplitter(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Turns every part of the text between separators into a document, with all other fields of the original.

    `segment_id_field` numbers the segments from 0. A text without the separator is one segment; so is an empty one, and
    a value that is null or not a string.
    """

    separator: str
    text_field: str = "text"
    segment_id_field: str = "segment_id"
    name: str = "document_splitter"
    columns_in = ("text_field",)
    columns_out = ("text_field", "segment_id_field")

    def __post_init__(self) -> None:
        if not isinstance(self.separator, str) or not self.separator:
            raise UsageError(f"DocumentSplitter(separator=...): expected a string to split at, got {self.separator!r}")

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        from tamis.formats.jsonl.encode import without_texts
        from tamis.tasks.columns.exact import replace_where

        texts = batch.texts(self.text_field)
        pieces = pc.split_pattern(texts.fill_null(""), pattern=self.separator)
        n_pieces = pieces.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
        rows = np.repeat(np.arange(len(texts)), n_pieces)
        first = np.cumsum(n_pieces) - n_pieces
        numbers = np.arange(len(rows)) - np.repeat(first, n_pieces)
        split = batch
        if len(rows) > len(texts):
            segments = pieces.flatten()
            unsplit = np.flatnonzero(texts.is_null().to_numpy(zero_copy_only=False))
            if len(unsplit):  # null, or not a string: unchanged
                mask = np.zeros(len(rows), bool)
                mask[first[unsplit]] = True
                segments = replace_where(segments, mask, batch.exact_column(self.text_field).take(pa.array(unsplit)))
            split = without_texts(batch, self.text_field, n_pieces > 1).take(rows)
            split = split.with_column(self.text_field, segments)
        return split.with_column(self.segment_id_field, pa.array(numbers, pa.int64()))
