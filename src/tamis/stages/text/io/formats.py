"""Chooses the writer of an output by the format of the input."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tamis.stages.text.io.writer.files import FileWriter


def output_format(
    source: Any, accepted: Sequence[str] | None = None, output: str | None = None
) -> tuple[type[FileWriter], str]:
    """Return the writer class and file extension of the input files.

    JSONL for several formats, plain for several codecs.

    `accepted`: the suffixes of files that are read, by default all that Tamis knows. `output`: a folder to exclude.
    """
    from tamis.formats.input_files.listing import list_files
    from tamis.formats.input_files.skipped import suffix_of
    from tamis.formats.registry import table_name
    from tamis.stages.file_partitioning import FilePartitioningStage

    accepted = FilePartitioningStage(source).suffixes() if accepted is None else tuple(accepted)
    files = list_files(source, accepted, leave_out=[output] if output is not None else [])
    suffixes = {suffix_of(os.fsdecode(path), accepted) for path in files.paths}
    tables = {table_name(suffix) for suffix in suffixes}
    if len(tables) == 1 and (name := tables.pop()) in _writers():
        return writer_of(name), (suffixes.pop().lstrip(".") if len(suffixes) == 1 else name)
    codecs = {suffix.rpartition(".")[2] for suffix in suffixes if suffix.count(".") == 2}
    is_one_codec = len(codecs) == 1 and all(suffix.count(".") == 2 for suffix in suffixes)
    return writer_of("jsonl"), f"jsonl.{codecs.pop()}" if is_one_codec else "jsonl"


def writer_of(file_type: str) -> type[FileWriter]:
    """Return the writer class for "parquet", "arrow", "jsonl", "jsonl.zst"."""
    return _writers().get(file_type) or _writers()["jsonl"]


def _writers() -> dict[str, type[FileWriter]]:
    from tamis.stages.text.io import writer

    return {cls.format: cls for cls in (writer.JsonlWriter, writer.ParquetWriter, writer.ArrowWriter)}
