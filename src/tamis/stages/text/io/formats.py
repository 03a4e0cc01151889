"""Which format an output gets when it is to be that of the input, and who writes it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tamis.stages.text.io.writer import JsonlWriter


def output_format(
    source: Any, accepted: Sequence[str] | None = None, output: str | None = None
) -> tuple[type[JsonlWriter], str]:
    """(writer, file extension): those of the input files where they agree; JSONL for a mix of formats, plain for one of codecs.

    `accepted`: the endings of file names that are read, by default all that Tamis knows. `output`: a folder that is no input.
    """
    from tamis.formats.input_files.listing import list_files
    from tamis.formats.input_files.names import suffix_of
    from tamis.formats.registry import table_name
    from tamis.stages.file_partitioning import FilePartitioningStage

    accepted = FilePartitioningStage(source).suffixes() if accepted is None else tuple(accepted)
    files = list_files(source, accepted, leave_out=[output] if output is not None else [])
    suffixes = {suffix_of(os.fsdecode(path), accepted) for path in files.paths}
    tables = {table_name(suffix) for suffix in suffixes}
    if len(tables) == 1 and (name := tables.pop()) in _writers():
        return writer_of(name), (suffixes.pop().lstrip(".") if len(suffixes) == 1 else name)
    codecs = {suffix.rpartition(".")[2] for suffix in suffixes if suffix.count(".") == 2}
    same = len(codecs) == 1 and all(suffix.count(".") == 2 for suffix in suffixes)
    return writer_of("jsonl"), f"jsonl.{codecs.pop()}" if same else "jsonl"


def writer_of(file_type: str) -> type[JsonlWriter]:
    """Return the writer class for "parquet", "arrow", "jsonl", "jsonl.zst"."""
    return _writers().get(file_type) or _writers()["jsonl"]


def _writers() -> dict[str, type[JsonlWriter]]:
    from tamis.stages.text.io import writer

    return {made.format: made for made in (writer.JsonlWriter, writer.ParquetWriter, writer.ArrowWriter)}
