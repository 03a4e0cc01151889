"""DocumentReader: any mix of formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from tamis.stages.file_partitioning import JSONL_SUFFIXES, PARQUET_SUFFIXES
from tamis.stages.text.io.reader.jsonl import JsonlReader, JsonlReaderStage


@dataclass(repr=False)
class DocumentReaderStage(JsonlReaderStage):
    """Any mix of JSONL and Parquet files."""

    name: str = "document_reader"
    formats: ClassVar[tuple[str, ...]] = ("jsonl", "parquet")


@dataclass(repr=False)
class DocumentReader(JsonlReader):
    """Read any mix of JSONL and Parquet files. Parameters as in JsonlReader."""

    file_extensions: Sequence[str] = (*JSONL_SUFFIXES, *PARQUET_SUFFIXES)
    name: str = "document_reader"
    _stage: type[JsonlReaderStage] = field(default=DocumentReaderStage, init=False, repr=False)
