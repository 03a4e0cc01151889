"""ParquetReader: rows of Parquet files as documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from tamis.stages.file_partitioning import PARQUET_SUFFIXES
from tamis.stages.text.io.reader.jsonl import JsonlReader, JsonlReaderStage


@dataclass(repr=False)
class ParquetReaderStage(JsonlReaderStage):
    """Rows of Parquet files."""

    name: str = "parquet_reader"
    formats: ClassVar[tuple[str, ...]] = ("parquet",)


@dataclass(repr=False)
class ParquetReader(JsonlReader):
    """Read Parquet files. Parameters as in JsonlReader."""

    file_extensions: Sequence[str] = PARQUET_SUFFIXES
    name: str = "parquet_reader"
    _stage: type[JsonlReaderStage] = field(default=ParquetReaderStage, init=False, repr=False)
