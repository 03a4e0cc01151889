"""Reading and writing of documents."""

from tamis.stages.text.io.reader import (
    ArrowReader,
    DocumentReader,
    JsonlReader,
    ParquetReader,
    TextReader,
    WarcReader,
)
from tamis.stages.text.io.writer import ArrowWriter, JsonlWriter, ParquetWriter

__all__ = [
    "ArrowReader",
    "ArrowWriter",
    "DocumentReader",
    "JsonlReader",
    "JsonlWriter",
    "ParquetReader",
    "ParquetWriter",
    "TextReader",
    "WarcReader",
]
