"""ConvertImageBatchToDocumentBatchStage: metadata of images as plain documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from tamis._dataclasses import dataclass
from tamis.stages.base import ProcessingStage
from tamis.stages.io import check_fields
from tamis.tasks import DocumentBatch
from tamis.tasks.image import column_of


@dataclass(repr=False)
class ConvertImageBatchToDocumentBatchStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Converts images to documents with the chosen fields.

    `fields`: fields of ImageObject (image_id, image_path, embedding, aesthetic_score, ...) and any other columns;
    default: image_id only.
    """

    fields: Sequence[str] = field(default_factory=list)
    name: str = "convert_image_batch_to_document_batch"

    def __post_init__(self) -> None:
        self.fields = check_fields(self.name, self.fields) if self.fields else ["image_id"]  # type: ignore[assignment]

    def outputs(self) -> Any:
        return ["data"], list(self.fields)

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        documents = DocumentBatch.like(batch)
        for name in self.fields:
            documents = documents.with_column(name, batch.column(column_of(name)))
        return documents.select(list(self.fields))
