"""DocumentDownloadExtractStage: URLs, downloads, records and documents under one name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tamis.errors import UsageError
from tamis.sizes import check_optional_integer
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.text.download.base.download import DocumentDownloader, DocumentDownloadStage
from tamis.stages.text.download.base.extract import DocumentExtractor
from tamis.stages.text.download.base.iterator import DocumentIterateExtractStage, DocumentIterator
from tamis.stages.text.download.base.url_generation import URLGenerationStage, URLGenerator
from tamis.tasks import DocumentBatch, EmptyTask


@dataclass(repr=False)
class DocumentDownloadExtractStage(CompositeStage[EmptyTask, DocumentBatch]):
    """Lists URLs, downloads them, and turns the files into documents.

    Each file is a unit of work: workers fetch and read different ones at the same time, and a run that was stopped goes
    on with those that are missing. `remove_files`: a file is removed when its documents were read. `download_limit`:
    files take at most so much disk at a time (with `remove_files`). `url_limit`: only the first so many URLs.
    `record_limit`: only so many records of each file. `extractor_max_calls_per_worker`: for Ray, a worker is replaced
    after so many files.
    """

    url_generator: URLGenerator
    downloader: DocumentDownloader
    iterator: DocumentIterator
    extractor: DocumentExtractor | None = None
    url_limit: int | None = None
    record_limit: int | None = None
    add_filename_column: bool | str = True
    extractor_max_calls_per_worker: int | None = None
    download_limit: int | str | None = None
    remove_files: bool = False

    def __post_init__(self) -> None:
        super().__init__()
        parts = (self.url_generator, self.downloader, self.iterator, self.extractor)
        self.name = "document_download_extract_" + "_".join(type(p).__name__.lower() for p in parts if p is not None)
        for what in ("url_limit", "record_limit", "extractor_max_calls_per_worker"):
            check_optional_integer(getattr(self, what), f"{self.name}: {what}")
        if self.download_limit is not None and not self.remove_files:
            raise UsageError(
                f"{self.name}: download_limit bounds files that are removed again: give remove_files=True with it"
            )

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        return [
            URLGenerationStage(self.url_generator, self.url_limit),
            DocumentDownloadStage(self.downloader, self.download_limit),
            DocumentIterateExtractStage(
                self.iterator,
                self.extractor,
                self.record_limit,
                self.add_filename_column,
                self.extractor_max_calls_per_worker,
                self.remove_files,
            ),
        ]

    def get_description(self) -> str:
        return (
            f"Downloads with {type(self.downloader).__name__} and reads documents with {type(self.iterator).__name__}"
        )
