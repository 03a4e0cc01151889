"""Readers: the usual first stage of a pipeline. `base.py` is for formats that Tamis does not read."""

from tamis.stages.text.io.reader.files import (
    ArrowReader,
    ArrowReaderStage,
    DocumentReader,
    DocumentReaderStage,
    TextReader,
    TextReaderStage,
)
from tamis.stages.text.io.reader.jsonl import JsonlReader, JsonlReaderStage
from tamis.stages.text.io.reader.parquet import ParquetReader, ParquetReaderStage
from tamis.stages.text.io.reader.warc import WarcReader, WarcReaderStage

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
    "WarcReader",
    "WarcReaderStage",
]
