"""What the engine knows of readers and writers: their base classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tamis.errors import UsageError
from tamis.stages.base import ProcessingStage
from tamis.tasks import DocumentBatch, FileGroupTask, Task


class Reader(ProcessingStage[FileGroupTask, DocumentBatch]):
    """Turns files into documents. The engine reads ranges of files itself, guided by these attributes."""

    name = "reader"
    formats: ClassVar[tuple[str, ...]] = ("jsonl", "parquet")
    fields: Sequence[str] | None = None
    batch: ClassVar[type[DocumentBatch]] = DocumentBatch  # what its documents flow as
    checked = False  # set by a workflow whose earlier pass found every record of the same files to be valid
    known: str | None = None  # the folder where an earlier pass told where records lie (formats/jsonl/known_records.py)
    # Set by a workflow whose later passes ask that of this one: verdicts tell the hashes of records, too.
    tells_records = False

    def process(self, task: FileGroupTask) -> list[DocumentBatch]:
        """Whole files at once, for use outside of a run; a run reads ranges that fit its budget."""
        from tamis.formats.whole_file import read_whole_file

        batches = [read_whole_file(path, self.formats) for path in task.data]
        for batch in batches:
            batch.dataset_name = task.dataset_name
        return [b.select(list(self.fields)) for b in batches] if self.fields is not None else batches


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
    options: Mapping[str, Any] | None = None  # plain values for a format that is written as several files at once
    is_reported: ClassVar[bool] = True  # whether a run that writes this leaves a report

    def process(self, task: Task[Any]) -> FileGroupTask:
        raise UsageError(
            f"{self.name}: files are written by a run, which commits them whole; add this stage to a Pipeline and run it"
        )


def check_fields(stage: str, fields: Any) -> list[str] | None:
    if fields is None:
        return None
    if isinstance(fields, str) or not all(isinstance(f, str) for f in fields) or not list(fields):
        raise UsageError(f"{stage}: fields must be a list of field names, got {fields!r}")
    return list(fields)


def refuse_unknown(stage: str, what: str, given: Mapping[str, Any] | None, known: Sequence[str]) -> dict[str, Any]:
    """Options that nobody would read are refused, never ignored."""
    unknown = sorted(set(given or {}) - set(known))
    if unknown:
        accepted = ", ".join(known) if known else "none"
        raise UsageError(f"{stage}: {what} has {unknown}, which this version does not know; accepted: {accepted}")
    return dict(given or {})
