"""JsonlReader: the usual first stage of a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tamis.errors import UsageError
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.file_partitioning import JSONL_SUFFIXES, FilePartitioningStage
from tamis.stages.io import Reader, check_fields, refuse_unknown
from tamis.tasks import DocumentBatch, EmptyTask


@dataclass(repr=False)
class JsonlReaderStage(Reader):
    """One document per line; plain or .gz, .zst, .bz2, .xz."""

    fields: Sequence[str] | None = None
    read_kwargs: dict[str, Any] | None = None
    name: str = "jsonl_reader"
    formats: ClassVar[tuple[str, ...]] = ("jsonl",)

    def __post_init__(self) -> None:
        self.fields = check_fields(self.name, self.fields)
        self.read_kwargs = refuse_unknown(self.name, "read_kwargs", self.read_kwargs, ())


@dataclass(repr=False)
class JsonlReader(CompositeStage[EmptyTask, DocumentBatch]):
    """Read JSONL files: a folder, a glob, a file or a list of these.

    `blocksize` bounds the decoded bytes of one partition (large files are split), `files_per_partition` groups whole
    files; with neither, partitions follow from the memory budget. `fields`: only these come out.
    """

    file_paths: str | Sequence[str]
    files_per_partition: int | None = None
    blocksize: int | str | None = None
    fields: Sequence[str] | None = None
    read_kwargs: dict[str, Any] | None = None
    task_type: str = "document"
    file_extensions: Sequence[str] = JSONL_SUFFIXES
    storage_options: dict[str, Any] | None = None
    limit: int | None = None
    name: str = "jsonl_reader"
    _stage: type[JsonlReaderStage] = field(default=JsonlReaderStage, init=False, repr=False)
    checked: bool = field(default=False, init=False, repr=False)  # as in Reader
    known: str | None = field(default=None, init=False, repr=False)
    leave_out: tuple[str, ...] = field(default=(), init=False, repr=False)  # as in FilePartitioningStage

    def __post_init__(self) -> None:
        super().__init__()
        if self.task_type != "document":
            raise UsageError(f"{self.name}: task_type must be 'document', got {self.task_type!r}")
        self.decompose()

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        reader = self._stage(self.fields, self.read_kwargs)
        reader.checked, reader.known = self.checked, self.known
        files = FilePartitioningStage(
            self.file_paths,
            files_per_partition=self.files_per_partition,
            blocksize=self.blocksize,
            file_extensions=self.file_extensions,
            storage_options=self.storage_options,
            limit=self.limit,
        )
        files.leave_out = self.leave_out
        return [files, reader]
