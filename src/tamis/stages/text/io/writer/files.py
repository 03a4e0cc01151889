"""The base of the built-in writers, whose files the engine writes and commits, and the writer of Arrow files.

`process` and `write_data` of a writer write one batch immediately, for use outside of a run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar

from tamis._dataclasses import dataclass
from tamis._lazy import np, pa
from tamis.errors import UsageError, check_choice, optional
from tamis.formats.hive import check_names
from tamis.stages.io import Writer, check_fields
from tamis.stages.text.io.options import rows_options
from tamis.stages.text.io.writer.base import BaseWriter
from tamis.stores.options import keep_keys
from tamis.stores.urls import is_bucket, output_url, path_of
from tamis.tasks import ROW_ID, DocumentBatch, FileGroupTask

MODES = ("ignore", "overwrite", "append", "error")


@dataclass(repr=False)
class FileWriter(Writer):
    """Writes files of one format. Fields that no stage changed come out byte for byte.

    `mode`: "ignore" resumes an earlier run of the same pipeline; "overwrite" starts over (only files that Tamis wrote
    are removed); "append" adds files to a folder that holds others; "error" rejects a folder that is not empty.
    `partition_by`: fields whose values name folders, as in `path/language=en/part-00000.jsonl`; in a run only.
    """

    path: str
    file_extension: str = ""
    write_kwargs: Mapping[str, Any] | None = None
    fields: Sequence[str] | None = None
    name: str = "file_writer"
    mode: str = "ignore"
    append_mode_implemented: bool = False  # a parameter of NeMo Curator; every writer can append
    partition_by: Sequence[str] | str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self.partition_by = check_names(self.partition_by, f"{self.name}: partition_by") or None
        self.path = output_path(self.name, self.path)
        self.fields = check_fields(self.name, self.fields)
        if (store := (self.write_kwargs or {}).get("storage_options")) is not None:
            kept = keep_keys(self.path, store, f"{self.name}: write_kwargs: storage_options")
            self.write_kwargs = {**(self.write_kwargs or {}), "storage_options": kept}
        check_choice(f"{self.name}: mode", self.mode, MODES)
        self.file_extension = self.file_extension.lstrip(".")
        self._check_format()

    def _check_format(self) -> None:
        """Check the file extension and the options of the format."""

    def process(self, task: Any) -> FileGroupTask:
        """Write a batch now, completely or not at all, next to existing files; a run writes and commits by itself."""
        if not isinstance(task, DocumentBatch):
            raise UsageError(f"{self.name}: process() writes documents (DocumentBatch), got {type(task).__name__}")
        writer = self._batch_writer()
        writer.write_data = self.write_data  # type: ignore[method-assign]  # which a subclass may have
        return writer.process(task)

    def write_data(self, task: DocumentBatch, file_path: str) -> None:
        """Write a batch to exactly this file."""
        os.makedirs(os.path.dirname(file_path) or ".", exist_ok=True)
        self._batch_writer().write_data(task, file_path)

    def get_file_extension(self) -> str:
        return self.file_extension

    @property
    def fs(self) -> Any:
        """The file system of `path` (fsspec), for writers of a user's own."""
        fsspec: Any = optional("fsspec", f"{self.name}.fs", "fsspec")
        return fsspec.core.url_to_fs(self.path)[0]

    @property
    def _fs_path(self) -> str:
        return self.path.removeprefix("s3://")

    def _batch_writer(self) -> _BatchWriter:
        mode = "ignore" if self.mode == "overwrite" else self.mode
        options = self.write_kwargs or {}
        writer = _BatchWriter(self.path, self.file_extension, {}, self.fields, self.name, mode)
        writer.format, writer.codec = self.format, self.codec
        writer.compression = str(options.get("compression") or "zstd")
        writer.row_group_size = options.get("row_group_size")
        return writer


@dataclass(repr=False)
class RowsWriter(FileWriter):
    """Writes rows. All files of a run have one schema: that of `schema`, or the union of the types of the documents."""

    schema: Mapping[str, str] | None = None
    extensions: ClassVar[tuple[str, ...]] = ()
    compressions: ClassVar[tuple[str, ...]] = ("none",)
    write_options: ClassVar[tuple[str, ...]] = ()

    def _check_format(self) -> None:
        self.write_kwargs = rows_options(self.name, self.write_kwargs, self.compressions, self.write_options)
        if self.file_extension not in self.extensions:
            expected = " or ".join(self.extensions)
            raise UsageError(f"{self.name}: file_extension must be {expected}, got {self.file_extension!r}")
        if self.schema is not None and not all(isinstance(t, str) for t in self.schema.values()):
            raise UsageError(
                f"{self.name}: schema maps column names to type names, e.g. {{'text': 'string', 'n': 'int64'}}"
            )


@dataclass(repr=False)
class ArrowWriter(RowsWriter):
    """Write Arrow IPC files (.arrow or .feather). `write_kwargs`: compression ("zstd", "lz4", "none")."""

    file_extension: str = "arrow"
    name: str = "arrow_writer"
    format = "arrow"
    extensions: ClassVar[tuple[str, ...]] = ("arrow", "feather")
    compressions: ClassVar[tuple[str, ...]] = ("zstd", "lz4", "none")


def output_path(stage: str, path: Any) -> str:
    """Return the output location: an absolute local folder, or s3://bucket/path."""
    location: str = path_of(os.fspath(path))
    if is_bucket(location):
        return output_url(location)
    if "://" in location:
        raise UsageError(f"{stage}: {location}: cannot write there; give a local folder, or s3://bucket/path")
    return os.path.abspath(os.path.expanduser(location))


@dataclass(repr=False)
class _BatchWriter(BaseWriter):
    """Writes a batch immediately; `format`, `codec` and `compression` are those of a FileWriter."""

    format: str = "jsonl"
    codec: str | None = None
    compression: str = "zstd"
    row_group_size: int | None = None

    def write_data(self, task: DocumentBatch, file_path: str) -> None:
        from tamis.formats import registry
        from tamis.formats.compression.streams import StreamWriter

        if self.format in registry.TABLES:
            table = _table(task)
            writer = registry.load_table_format(self.format).TableWriter
            more = {} if self.row_group_size is None else {"row_group_rows": self.row_group_size}
            with writer(file_path, table.schema, compression=self.compression, **more) as rows:
                rows.write(table)
            return
        with StreamWriter(file_path, self.codec) as out:
            for piece in registry.load_line_format(self.format).written_lines(_with_records(task)).pieces:
                out.write(piece)


def _table(batch: DocumentBatch) -> pa.Table:
    table = batch.to_pyarrow()
    return table.drop_columns([ROW_ID]) if ROW_ID in table.column_names else table


def _with_records(batch: DocumentBatch) -> DocumentBatch:
    if batch.lineage is not None:
        return batch
    from tamis.formats.table_block import TableBlock

    return DocumentBatch.over(TableBlock(_table(batch)), np.arange(batch.num_items), batch.dataset_name)
