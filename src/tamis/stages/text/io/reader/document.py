"""DocumentReader: any mix of formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tamis.formats.registry import suffixes
from tamis.stages.text.io.reader.files import FileReaderStage, RowsReader


@dataclass(repr=False)
class DocumentReaderStage(FileReaderStage):
    """Any mix of JSONL, Parquet and Arrow files."""

    name: str = "document_reader"
    formats: ClassVar[tuple[str, ...]] = ("jsonl", "parquet", "arrow")


@dataclass(repr=False)
class DocumentReader(RowsReader):
    """Read any mix of JSONL, Parquet and Arrow files. Parameters as in JsonlReader."""

    file_extensions: Sequence[str] = suffixes()
    name: str = "document_reader"
    reader: ClassVar[type[FileReaderStage]] = DocumentReaderStage
