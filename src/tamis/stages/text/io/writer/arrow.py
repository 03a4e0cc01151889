"""ArrowWriter: documents as rows of Arrow files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tamis.stages.text.io.writer.parquet import ParquetWriter


@dataclass(repr=False)
class ArrowWriter(ParquetWriter):
    """Write Arrow IPC files (.arrow or .feather), all files of a run with one schema, as ParquetWriter does.

    `write_kwargs`: compression ("zstd", "lz4", "none").
    """

    file_extension: str = "arrow"
    name: str = "arrow_writer"
    format = "arrow"
    extensions: ClassVar[tuple[str, ...]] = ("arrow", "feather")
    compressions: ClassVar[tuple[str, ...]] = ("zstd", "lz4", "none")
