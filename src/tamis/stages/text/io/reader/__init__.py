"""Readers: the usual first stage of a pipeline. One file per format."""

from tamis.stages.text.io.reader.arrow import ArrowReader, ArrowReaderStage
from tamis.stages.text.io.reader.document import DocumentReader, DocumentReaderStage
from tamis.stages.text.io.reader.jsonl import JsonlReader, JsonlReaderStage
from tamis.stages.text.io.reader.parquet import ParquetReader, ParquetReaderStage
from tamis.stages.text.io.reader.text import TextReader, TextReaderStage

__all__ = [
    "ArrowReader",
    "ArrowReaderStage",
    "DocumentReader",
    "DocumentReaderStage",
    "JsonlReader",
    "JsonlReaderStage",
    "ParquetReader",
    "ParquetReaderStage",
    "TextReader",
    "TextReaderStage",
]
