"""ParquetWriter: documents as rows of Parquet files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tamis.errors import UsageError
from tamis.stages.text.io.options import rows_options
from tamis.stages.text.io.writer.jsonl import JsonlWriter


@dataclass(repr=False)
class ParquetWriter(JsonlWriter):
    """Write Parquet, all files of a run with one schema: the types in `schema`, or the union of the types found.

    `write_kwargs`: compression ("zstd", "snappy", "gzip", "lz4", "none").
    """

    file_extension: str = "parquet"
    name: str = "parquet_writer"
    schema: Mapping[str, str] | None = None
    format = "parquet"
    extensions: ClassVar[tuple[str, ...]] = ("parquet",)
    compressions: ClassVar[tuple[str, ...]] = ("zstd", "snappy", "gzip", "lz4", "none")

    def _check_format(self) -> None:
        self.write_kwargs = rows_options(self.name, self.write_kwargs, self.compressions)
        if self.file_extension not in self.extensions:
            wanted = " or ".join(self.extensions)
            raise UsageError(f"{self.name}: file_extension must be {wanted}, got {self.file_extension!r}")
        if self.schema is not None and not all(isinstance(t, str) for t in self.schema.values()):
            raise UsageError(
                f"{self.name}: schema maps column names to type names, e.g. {{'text': 'string', 'n': 'int64'}}"
            )
