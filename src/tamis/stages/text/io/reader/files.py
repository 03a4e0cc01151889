"""What the readers of files share: which files, in what partitions, which fields."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from tamis._lazy import pd
from tamis.errors import UsageError
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.file_partitioning import FilePartitioningStage
from tamis.stages.io import Reader, ReadHints, check_fields, with_hints
from tamis.stages.text.io.options import read_options
from tamis.stages.text.io.reader.ids import CURRENT, Numbers, PlaceIds
from tamis.tasks import DocumentBatch, EmptyTask, FileGroupTask


@dataclass(repr=False)
class FileReaderStage(Reader):
    """Turns files of certain formats into documents."""

    fields: Sequence[str] | None = None
    read_kwargs: dict[str, Any] | None = None
    name: str = "file_reader"
    _generate_ids: bool = False
    _assign_ids: bool = False
    allow_empty: bool = False  # where nothing was read there are no documents, and that is no error

    def __post_init__(self) -> None:
        self.fields = check_fields(self.name, self.fields)
        self.read_kwargs, fields = read_options(self.name, self.read_kwargs)
        self.fields = self.fields or fields
        if self._generate_ids or self._assign_ids:
            raise UsageError(
                f"{self.name}: ids are added by the reader that names the files: JsonlReader, ParquetReader"
            )

    def read_data(
        self, paths: Sequence[str], read_kwargs: dict[str, Any] | None = None, fields: Sequence[str] | None = None
    ) -> Any:
        """Read all documents of these files as a frame, for use outside of a run."""
        chosen = check_fields(self.name, fields) or self.fields
        batches = type(self)(chosen, read_kwargs).process(FileGroupTask("", list(paths)))
        if len(batches) == 1:
            return batches[0].to_pandas()
        return pd.concat([b.to_pandas() for b in batches], ignore_index=True) if batches else pd.DataFrame()


@dataclass(repr=False)
class FileReader(CompositeStage[EmptyTask, DocumentBatch]):
    """Reads files: a folder, a glob, a file or a list of these.

    `blocksize` bounds the decoded bytes of one partition (large files are split), `files_per_partition` groups whole
    files; with neither, partitions follow from the memory budget. `fields`: only these come out.
    Subclasses add the parameters that users know in another order for JSONL than for others, and name the stage that reads.
    """

    file_paths: str | Sequence[str]
    files_per_partition: int | None = None
    blocksize: int | str | None = None
    fields: Sequence[str] | None = None
    read_kwargs: dict[str, Any] | None = None
    hints: ReadHints = field(default=ReadHints(), init=False, repr=False)
    leave_out: tuple[str, ...] = field(default=(), init=False, repr=False)  # as in FilePartitioningStage
    reader: ClassVar[type[FileReaderStage]]

    def __post_init__(self) -> None:
        super().__init__()
        of: Any = self
        if of.task_type != "document":
            raise UsageError(f"{self.name}: task_type must be 'document', got {of.task_type!r}")
        if of._generate_ids and of._assign_ids:
            raise UsageError(
                f"{self.name}: give _generate_ids (new ids) or _assign_ids (those of the id generator), not both"
            )
        self._parts()

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        parts, of = self._parts(), cast("Any", self)
        return [*parts, PlaceIds(self._numbers(parts[0]))] if of._generate_ids or of._assign_ids else parts

    def _numbers(self, files: Any) -> list[int]:
        """Return the numbers of the input files, which the id generator of this program knows or assigns."""
        from tamis.formats.input_files.listing import list_files

        assign = bool(cast("Any", self)._assign_ids)
        if assign and not CURRENT:
            raise UsageError(
                f"{self.name}: _assign_ids takes ids from a generator; begin one with create_id_generator_actor(path)"
            )
        files.reach()
        found = list_files(files.file_paths, files.suffixes(), files.limit, files.leave_out)
        return (CURRENT[0] if CURRENT else Numbers()).of([os.fsdecode(p) for p in found.paths], known_only=assign)

    def _parts(self) -> list[ProcessingStage[Any, Any]]:
        of: Any = self
        reader = with_hints(self.reader(self.fields, self.read_kwargs), self.hints)
        files = FilePartitioningStage(
            self.file_paths,
            files_per_partition=self.files_per_partition,
            blocksize=self.blocksize,
            file_extensions=of.file_extensions,
            storage_options=of.storage_options or (self.read_kwargs or {}).get("storage_options"),
            limit=of.limit,
        )
        files.leave_out = self.leave_out
        return [files, reader]


@dataclass(repr=False)
class RowsReader(FileReader):
    """A reader of rows; a subclass gives the endings of files, a name and the stage that reads. ParquetReader and DocumentReader have the
    same parameters in another order, which those who give them by position know."""

    file_extensions: Sequence[str] = ()
    task_type: str = "document"
    _generate_ids: bool = False
    _assign_ids: bool = False
    storage_options: dict[str, Any] | None = None
    limit: int | None = None
    name: str = "file_reader"
