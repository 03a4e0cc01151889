"""The base classes of readers and writers, which is all that the engine knows of them."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

from tamis.errors import UsageError
from tamis.formats.registry import FILE_TYPES
from tamis.stages.base import ProcessingStage
from tamis.tasks import DocumentBatch, FileGroupTask, Task

Source = TypeVar("Source", bound=ProcessingStage[Any, Any])


class ReadHints(NamedTuple):
    """Facts about the input from earlier passes of a workflow, which change how a pass reads but never what it reads.

    `all_valid`: an earlier pass found every record of the same files to be valid. `record_index`: the folder in which
    an earlier pass listed the positions of records (formats/jsonl/record_index.py). `keep_hashes`: later passes need
    the hashes of the records that this one drops, so verdicts contain them. `keep_records_in`: the folder in which this
    pass keeps records for later ones, and `kept_records`: the folder in which an earlier one did, without a field of
    which a stage stored what it made (formats/scratch/kept_records.py).
    """

    all_valid: bool = False
    record_index: str | None = None
    keep_hashes: bool = False
    keep_records_in: str | None = None
    kept_records: str | None = None


def with_hints(source: Source, hints: ReadHints) -> Source:
    """Return the source of a pipeline with these hints, or unchanged if it cannot use them."""
    if not hasattr(source, "hints"):
        return source
    changed: Any = copy.copy(source)
    changed.hints = hints
    return cast("Source", changed)


class Reader(ProcessingStage[FileGroupTask, DocumentBatch]):
    """Turns files into documents. The engine reads ranges of files itself, guided by these attributes."""

    name = "reader"
    formats: ClassVar[tuple[str, ...]] = FILE_TYPES
    fields: Sequence[str] | None = None
    column_types: Mapping[str, str] | None = None
    """Types of JSON fields in frames (tasks/columns/frame_types.py): declared, or found before the run."""
    batch: ClassVar[type[DocumentBatch]] = DocumentBatch
    """The class of the batches that it returns."""
    hints: ReadHints = ReadHints()

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], list(self.fields or [])

    def process(self, task: FileGroupTask) -> Any:
        """Read whole files as one batch, for use outside of a run; a run reads ranges that fit its budget."""
        from tamis.formats.whole_file import read_whole_files

        batch = read_whole_files(task.data, self.formats)
        batch.dataset_name, batch._metadata = task.dataset_name, {**task._metadata, "source_files": list(task.data)}
        batch._stage_perf = list(task._stage_perf)
        batch.column_types = self.column_types
        return batch.select(list(self.fields)) if self.fields is not None else batch


class Writer(ProcessingStage[Task[Any], FileGroupTask]):
    """Turns documents into files under `path`. The engine writes, syncs and commits the files itself."""

    name = "writer"
    is_sink_stage = True
    path: str
    format: str = "jsonl"
    codec: str | None = None
    file_extension: str = "jsonl"
    fields: Sequence[str] | None = None
    mode: str = "ignore"
    schema: Mapping[str, str] | None = None
    write_kwargs: Mapping[str, Any] | None = None
    options: Mapping[str, Any] | None = None
    """Plain values for a format that is written as several files at once."""
    partition_by: Sequence[str] | str | None = None
    """Fields whose values name the folders of the files (formats/hive.py)."""
    is_reported: ClassVar[bool] = True
    """A run that writes this also writes a report."""

    @property
    def is_synced(self) -> bool:
        """True if files are on disk before they are committed; else the run starts over after the machine restarts."""
        return True

    @property
    def writes_itself(self) -> bool:
        """True if a class of the user writes the files, which the engine then neither writes nor commits."""
        return any(not getattr(type(self), name).__module__.startswith("tamis.") for name in ("process", "write_data"))

    def write_data(self, task: DocumentBatch, file_path: str) -> None:
        """Write a batch to exactly this file, for use outside of a run."""
        raise UsageError(f"{self.name}: only a run can write these files")

    def process(self, task: Task[Any]) -> FileGroupTask:
        raise UsageError(
            f"{self.name}: only a run can write and commit these files; add this stage to a Pipeline and run it"
        )


def check_fields(stage: str, fields: Any) -> list[str] | None:
    """Return a list of field names, or None for all; raise UsageError for any other value."""
    if fields is None:
        return None
    if isinstance(fields, str) or not all(isinstance(f, str) for f in fields) or not list(fields):
        raise UsageError(f"{stage}: fields must be a list of field names, got {fields!r}")
    return list(fields)


def check_options(
    stage: str, parameter: str, options: Mapping[str, Any] | None, known: Sequence[str]
) -> dict[str, Any]:
    """Return the options; raise UsageError for unknown ones, which would have no effect."""
    unknown = sorted(set(options or {}) - set(known))
    if unknown:
        accepted = ", ".join(known) if known else "none"
        raise UsageError(f"{stage}: unknown {parameter} {unknown}; accepted: {accepted}")
    return dict(options or {})
