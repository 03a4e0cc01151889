"""What the readers of files share: which files, in what partitions, which fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tamis.errors import UsageError
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.file_partitioning import FilePartitioningStage
from tamis.stages.io import Reader, check_fields, refuse_unknown
from tamis.tasks import DocumentBatch, EmptyTask


@dataclass(repr=False)
class FileReaderStage(Reader):
    """Turns files of certain formats into documents."""

    fields: Sequence[str] | None = None
    read_kwargs: dict[str, Any] | None = None
    name: str = "file_reader"

    def __post_init__(self) -> None:
        self.fields = check_fields(self.name, self.fields)
        self.read_kwargs = refuse_unknown(self.name, "read_kwargs", self.read_kwargs, ())


@dataclass(repr=False)
class FileReader(CompositeStage[EmptyTask, DocumentBatch]):
    """Reads files: a folder, a glob, a file or a list of these.

    `blocksize` bounds the decoded bytes of one partition (large files are split), `files_per_partition` groups whole
    files; with neither, partitions follow from the memory budget. `fields`: only these come out.
    Subclasses add the parameters that users know in another order for each format, and name the stage that reads.
    """

    file_paths: str | Sequence[str]
    files_per_partition: int | None = None
    blocksize: int | str | None = None
    fields: Sequence[str] | None = None
    read_kwargs: dict[str, Any] | None = None
    checked: bool = field(default=False, init=False, repr=False)  # as in Reader
    known: str | None = field(default=None, init=False, repr=False)
    leave_out: tuple[str, ...] = field(default=(), init=False, repr=False)  # as in FilePartitioningStage
    reader: ClassVar[type[FileReaderStage]]

    def __post_init__(self) -> None:
        super().__init__()
        of: Any = self
        if of.task_type != "document":
            raise UsageError(f"{self.name}: task_type must be 'document', got {of.task_type!r}")
        self.decompose()

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        of: Any = self
        reader = self.reader(self.fields, self.read_kwargs)
        reader.checked, reader.known = self.checked, self.known
        files = FilePartitioningStage(
            self.file_paths,
            files_per_partition=self.files_per_partition,
            blocksize=self.blocksize,
            file_extensions=of.file_extensions,
            storage_options=of.storage_options,
            limit=of.limit,
        )
        files.leave_out = self.leave_out
        return [files, reader]
