"""DocumentReader: any mix of formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tamis.stages.file_partitioning import JSONL_SUFFIXES, PARQUET_SUFFIXES
from tamis.stages.text.io.reader.files import FileReader, FileReaderStage


@dataclass(repr=False)
class DocumentReaderStage(FileReaderStage):
    """Any mix of JSONL and Parquet files."""

    name: str = "document_reader"
    formats: ClassVar[tuple[str, ...]] = ("jsonl", "parquet")


@dataclass(repr=False)
class DocumentReader(FileReader):
    """Read any mix of JSONL and Parquet files. Parameters as in JsonlReader."""

    task_type: str = "document"
    file_extensions: Sequence[str] = (*JSONL_SUFFIXES, *PARQUET_SUFFIXES)
    _generate_ids: bool = False
    _assign_ids: bool = False
    storage_options: dict[str, Any] | None = None
    limit: int | None = None
    name: str = "document_reader"
    reader: ClassVar[type[FileReaderStage]] = DocumentReaderStage
