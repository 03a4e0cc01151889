"""DocumentReader: any mix of formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tamis.formats.registry import suffixes
from tamis.stages.text.io.reader.files import FileReader, FileReaderStage


@dataclass(repr=False)
class DocumentReaderStage(FileReaderStage):
    """Any mix of JSONL, Parquet and Arrow files."""

    name: str = "document_reader"
    formats: ClassVar[tuple[str, ...]] = ("jsonl", "parquet", "arrow")


@dataclass(repr=False)
class DocumentReader(FileReader):
    """Read any mix of JSONL, Parquet and Arrow files. Parameters as in JsonlReader."""

    task_type: str = "document"
    file_extensions: Sequence[str] = suffixes()
    _generate_ids: bool = False
    _assign_ids: bool = False
    storage_options: dict[str, Any] | None = None
    limit: int | None = None
    name: str = "document_reader"
    reader: ClassVar[type[FileReaderStage]] = DocumentReaderStage
