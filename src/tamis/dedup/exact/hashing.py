"""The first pass of exact deduplication: a hash for every document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tamis.dedup.keys import (
    check_keep,
    place_columns,
    ranks,
    record_batch,
    sorted_keys,
    text_hashes,
)
from tamis.dedup.normalization import NORMALIZATION_VERSION, check_mode, normalized
from tamis.stages.base import ProcessingStage
from tamis.tasks import DocumentBatch


@dataclass(repr=False)
class DocumentHashes(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Replaces documents by their records (keys.py): XXH3-128 of the normalised text. A null text has no key."""

    text_field: str = "text"
    normalize_text: str | bool = False
    keep: str = "first"
    keep_by: str | None = None
    name: str = "document_hashes"
    version: int = NORMALIZATION_VERSION

    def __post_init__(self) -> None:
        self.normalize_text = check_mode(self.name, self.normalize_text)
        check_keep(self.name, self.keep, self.keep_by)

    def inputs(self) -> Any:
        return ["data"], [self.text_field, *([self.keep_by] if self.keep_by else [])]

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        from tamis.formats.known import known_columns

        written = batch.texts(self.text_field)
        texts = normalized(written, str(self.normalize_text))
        hi, lo, length = text_hashes(texts)
        key, row = sorted_keys(hi, length >= 0)
        columns = place_columns(batch) | {"hi": hi, "lo": lo, "length": length} | known_columns(batch)
        columns |= {"rank": ranks(batch, self.keep, self.keep_by, written), "key_0": key, "row_0": row}
        return record_batch(batch, columns)
