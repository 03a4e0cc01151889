"""ParquetWriter: documents as rows of Parquet files."""

from __future__ import annotations

from typing import ClassVar

from tamis._dataclasses import dataclass
from tamis.stages.text.io.writer.files import RowsWriter


@dataclass(repr=False)
class ParquetWriter(RowsWriter):
    """Write Parquet.

    All files of a run have one schema: the types in `schema`, or the union of the types of the documents.

    `write_kwargs`: compression ("zstd", "snappy", "gzip", "lz4", "none"); row_group_size, the most rows of a row group,
    which also has 32 MB at most. `mode` as in JsonlWriter.
    """

    file_extension: str = "parquet"
    name: str = "parquet_writer"
    format = "parquet"
    extensions: ClassVar[tuple[str, ...]] = ("parquet", "pq")
    write_options: ClassVar[tuple[str, ...]] = ("row_group_size",)
    compressions: ClassVar[tuple[str, ...]] = ("zstd", "snappy", "gzip", "lz4", "none")
