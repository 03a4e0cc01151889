"""Reading and writing of documents."""

from tamis.stages.text.io.reader import DocumentReader, JsonlReader, ParquetReader
from tamis.stages.text.io.writer import JsonlWriter, ParquetWriter

__all__ = ["DocumentReader", "JsonlReader", "JsonlWriter", "ParquetReader", "ParquetWriter"]
