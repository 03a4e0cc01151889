"""ParquetReader: rows of Parquet files as documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tamis.stages.file_partitioning import PARQUET_SUFFIXES
from tamis.stages.text.io.reader.files import FileReaderStage, RowsReader


@dataclass(repr=False)
class ParquetReaderStage(FileReaderStage):
    """Rows of Parquet files."""

    name: str = "parquet_reader"
    formats: ClassVar[tuple[str, ...]] = ("parquet",)


@dataclass(repr=False)
class ParquetReader(RowsReader):
    """Read Parquet files. Parameters as in JsonlReader."""

    file_extensions: Sequence[str] = PARQUET_SUFFIXES
    name: str = "parquet_reader"
    reader: ClassVar[type[FileReaderStage]] = ParquetReaderStage
