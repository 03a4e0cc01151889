"""What the engine knows of readers and writers: their base classes."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, cast

from tamis.errors import UsageError
from tamis.stages.base import ProcessingStage
from tamis.tasks import DocumentBatch, FileGroupTask, Task

Source = TypeVar("Source", bound=ProcessingStage[Any, Any])


@dataclass(frozen=True)
class ReadHints:
    """What a workflow knows of its input from earlier passes; it changes how a pass reads, never what it reads.

    `all_valid`: an earlier pass found every record of the same files to be valid. `record_index`: the folder in which an
    earlier pass listed the positions of records (formats/jsonl/known_records.py). `keep_hashes`: later passes need the
    hashes of the records that this one drops, so verdicts contain them.
    """

    all_valid: bool = False
    record_index: str | None = None
    keep_hashes: bool = False


def with_hints(source: Source, hints: ReadHints) -> Source:
    """Return the source of a pipeline with these hints; unchanged if it reads in a way that has no use for them."""
    if not hasattr(source, "hints"):
        return source
    changed: Any = copy.copy(source)
    changed.hints = hints
    return cast("Source", changed)


class Reader(ProcessingStage[FileGroupTask, DocumentBatch]):
    """Turns files into documents. The engine reads ranges of files itself, guided by these attributes."""

    name = "reader"
    formats: ClassVar[tuple[str, ...]] = ("jsonl", "parquet")
    fields: Sequence[str] | None = None
    batch: ClassVar[type[DocumentBatch]] = DocumentBatch  # what its documents flow as
    hints: ReadHints = ReadHints()

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
