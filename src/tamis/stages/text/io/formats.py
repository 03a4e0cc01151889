"""Readers and writers of files by the name of their format, and the writer of an output by the format of the input."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tamis.errors import UsageError
from tamis.formats.registry import FILE_TYPES

if TYPE_CHECKING:
    from tamis.stages.text.io.reader.files import FileReader
    from tamis.stages.text.io.writer.files import FileWriter


def check_file_type(caller: str, name: str, file_type: str | None) -> None:
    """Raise UsageError unless a parameter named as in NeMo Curator is one of its formats, or None."""
    if file_type is not None and file_type not in FILE_TYPES:
        raise UsageError(f"{caller}: {name} must be {' or '.join(map(repr, FILE_TYPES))}, got {file_type!r}")


def reader_of(file_type: str | None) -> Callable[..., FileReader]:
    """Return the reader class of a format; for None, that of files of several formats."""
    from tamis.stages.text.io import reader

    if file_type is None:
        return reader.DocumentReader
    classes = [value for value in vars(reader).values() if isinstance(value, type) and hasattr(value, "reader")]
    return next(cls for cls in classes if cls.reader.formats == (file_type,))


def output_format(
    source: Any, accepted: Sequence[str] | None = None, output: str | None = None
) -> tuple[type[FileWriter], str]:
    """Return the writer class and file extension of the input files.

    JSONL for several formats and for WARC, plain for several codecs.

    `accepted`: the suffixes of files that are read, by default all that Tamis knows. `output`: a folder to exclude.
    """
    from tamis.formats.input_files.listing import list_files
    from tamis.formats.input_files.skipped import suffix_of
    from tamis.formats.registry import record_name, table_name
    from tamis.stages.file_partitioning import FilePartitioningStage

    accepted = FilePartitioningStage(source).suffixes() if accepted is None else tuple(accepted)
    files = list_files(source, accepted, leave_out=[output] if output is not None else [])
    suffixes = {suffix_of(os.fsdecode(path), accepted) for path in files.paths}
    tables = {table_name(suffix) for suffix in suffixes}
    if len(tables) == 1 and (name := tables.pop()) in _writers():
        return writer_of(name), (suffixes.pop().lstrip(".") if len(suffixes) == 1 else name)
    if any(record_name(suffix) for suffix in suffixes):  # what is made of web pages is much less than they are
        return writer_of("jsonl"), "jsonl"
    codecs = {suffix.rpartition(".")[2] for suffix in suffixes if suffix.count(".") == 2}
    is_one_codec = len(codecs) == 1 and all(suffix.count(".") == 2 for suffix in suffixes)
    return writer_of("jsonl"), f"jsonl.{codecs.pop()}" if is_one_codec else "jsonl"


def writer_of(file_type: str) -> type[FileWriter]:
    """Return the writer class for "parquet", "arrow", "jsonl", "jsonl.zst"."""
    return _writers().get(file_type) or _writers()["jsonl"]


def file_types() -> list[str]:
    """Return the formats that can be written, those of lines also with each compression: "jsonl", "jsonl.gz" and so on.

    >>> "arrow" in file_types(), "jsonl.zst" in file_types(), "parquet.zst" in file_types()
    (True, True, False)
    """
    from tamis.formats.registry import CODEC_SUFFIXES, LINES

    return [name + suffix for name in _writers() for suffix in (CODEC_SUFFIXES if name in LINES else ("",))]


def _writers() -> dict[str, type[FileWriter]]:
    """Return the writers of files by format: those that the package imports at once, the others write tokens."""
    from tamis.stages.text.io import writer
    from tamis.stages.text.io.writer.files import FileWriter

    imported = [value for value in vars(writer).values() if isinstance(value, type)]
    return {cls.format: cls for cls in imported if issubclass(cls, FileWriter)}
