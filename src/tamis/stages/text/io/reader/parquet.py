"""ParquetReader: rows of Parquet files as documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, ClassVar

from tamis._dataclasses import dataclass
from tamis.stages.file_partitioning import PARQUET_SUFFIXES
from tamis.stages.text.io.reader.files import FileReader, FileReaderStage


@dataclass(repr=False)
class ParquetReaderStage(FileReaderStage):
    """Rows of Parquet files."""

    name: str = "parquet_reader"
    formats: ClassVar[tuple[str, ...]] = ("parquet",)


@dataclass(repr=False)
class ParquetReader(FileReader):
    """Read Parquet files. Parameters as in JsonlReader."""

    file_extensions: Sequence[str] = PARQUET_SUFFIXES
    task_type: str = "document"
    _generate_ids: bool = False
    _assign_ids: bool = False
    name: str = "parquet_reader"
    storage_options: dict[str, Any] | None = None
    limit: int | None = None
    one_per_file: bool = field(default=True, init=False, repr=False)
    reader: ClassVar[type[FileReaderStage]] = ParquetReaderStage
