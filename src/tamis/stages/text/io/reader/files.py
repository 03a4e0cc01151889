"""Base classes of the built-in readers, whose files the engine reads in ranges, and readers of several formats.

A reader is a composite of a FilePartitioningStage, which lists the files, and a stage that names their formats. Those
of JSONL and Parquet are in `jsonl.py` and `parquet.py`.
"""

from __future__ import annotations

import copy
import glob
import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar, cast

from tamis import _satellites
from tamis._dataclasses import dataclass
from tamis.errors import UsageError
from tamis.formats.registry import record_name, suffixes, unasked_formats
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.file_partitioning import FilePartitioningStage
from tamis.stages.io import Reader, ReadHints, check_fields, with_hints
from tamis.stages.text.io.options import read_options
from tamis.stages.text.io.reader.ids import CURRENT, AddPositionIds, FileNumbers
from tamis.stores.urls import is_remote
from tamis.tasks import DocumentBatch, EmptyTask, FileGroupTask
from tamis.tasks.columns.frame_types import declared_types


@dataclass(repr=False)
class FileReaderStage(Reader):
    """Turns files of certain formats into documents."""

    fields: Any = None  # field names, or a mapping of these to types
    read_kwargs: dict[str, Any] | None = None
    name: str = "file_reader"
    _generate_ids: bool = False
    _assign_ids: bool = False
    allow_empty: bool = False  # a parameter of NeMo Curator; an empty file has no documents, which is never an error

    def __post_init__(self) -> None:
        self.read_kwargs, columns = read_options(self.name, self.read_kwargs)
        self.column_types = _declared(self.name, self.fields, self.read_kwargs.get("dtype"))
        self.fields = check_fields(self.name, self.fields) or columns  # of a mapping, its keys
        _check_ids(self.name, self)

    def stages_after(self, source: FilePartitioningStage, later: Sequence[Any]) -> list[ProcessingStage[Any, Any]]:
        """Return the stage that adds ids, of the files of `source`, unless it is the next of the `later` ones."""
        if not (self._generate_ids or self._assign_ids) or isinstance(next(iter(later), None), AddPositionIds):
            return []
        return [AddPositionIds(_file_numbers(self.name, source, known_only=self._assign_ids))]

    def process(self, task: FileGroupTask) -> Any:
        """Read whole files as one batch, for use outside of a run; ids are those of the generator of this program."""
        batch = super().process(task)
        if not (self._generate_ids or self._assign_ids):
            return batch
        if not CURRENT:
            raise UsageError(
                f"{self.name}: {task.data[0] if task.data else 'the task'} has no ids here: begin the pipeline with a "
                "FilePartitioningStage, or call create_id_generator_actor() before the stage"
            )
        paths = [os.path.abspath(path) for path in task.data]
        return AddPositionIds(CURRENT[0].of(paths, known_only=self._assign_ids)).process(batch)

    def read_data(
        self, paths: Sequence[str], read_kwargs: dict[str, Any] | None = None, fields: Sequence[str] | None = None
    ) -> Any:
        """Read all documents of these files as a frame, for use outside of a run."""
        chosen = fields if fields is not None else self.fields
        reader = type(self)(chosen, self.read_kwargs if read_kwargs is None else read_kwargs)
        return reader.process(FileGroupTask("", list(paths))).to_pandas()


def _declared(stage: str, fields: Any, dtype: Any) -> dict[str, str] | None:
    """Return the types that `fields` (a mapping) or the option `dtype` declares; None if neither does."""
    if isinstance(fields, Mapping):
        if dtype is not None:
            raise UsageError(f"{stage}: declare types in fields or in read_kwargs (dtype), not in both")
        return declared_types(f"{stage}: fields", fields)
    if dtype is None or dtype is True:
        return None
    if dtype is False:  # every value as in the JSON
        return {}
    if not isinstance(dtype, Mapping):
        raise UsageError(f"{stage}: read_kwargs: dtype must map fields to types, or be False for none, got {dtype!r}")
    return declared_types(f"{stage}: read_kwargs: dtype", dtype)


def _check_ids(stage: str, options: Any) -> None:
    if options._generate_ids and options._assign_ids:
        raise UsageError(f"{stage}: give _generate_ids (new ids) or _assign_ids (those of the id generator), not both")


def _file_numbers(stage: str, files: Any, known_only: bool) -> list[int]:
    """Return the numbers of the input files by the id generator of this program.

    New files get numbers, unless `known_only`.
    """
    from tamis.formats.input_files.listing import list_files

    if known_only and not CURRENT:
        raise UsageError(
            f"{stage}: _assign_ids takes ids from a generator; begin one with create_id_generator_actor(path)"
        )
    files.reach()
    listing = list_files(files.file_paths, files.suffixes(), files.limit, files.leave_out)
    numbers = CURRENT[0] if CURRENT else FileNumbers()
    return numbers.of([os.fsdecode(p) for p in listing.paths], known_only=known_only)


@dataclass(repr=False)
class FileReader(CompositeStage[EmptyTask, DocumentBatch]):
    """Reads files: a folder, a glob, a file or a list of these.

    `blocksize` bounds the decoded bytes of one partition (large files are split), `files_per_partition` groups whole
    files; with neither, partitions follow from the memory budget, or each file is one (`one_per_file`). `fields`: the
    documents have only these; a mapping ({"n": "int64"}) also declares the types that they have in `batch.data`, which
    are found by a scan otherwise.

    Subclasses name the stage that reads, and declare `file_extensions`, `task_type`, `_generate_ids`, `_assign_ids`,
    `storage_options` and `limit` in the order that callers of NeMo Curator's readers may rely on, which is not the same
    for all.
    """

    file_paths: str | Sequence[str]
    files_per_partition: int | None = None
    blocksize: int | str | None = None
    fields: Sequence[str] | Mapping[str, Any] | None = None
    read_kwargs: dict[str, Any] | None = None
    hints: ReadHints = field(default=ReadHints(), init=False, repr=False)
    leave_out: tuple[str, ...] = field(default=(), init=False, repr=False)  # as in FilePartitioningStage
    one_per_file: bool = field(default=False, init=False, repr=False)  # as in FilePartitioningStage
    reader: ClassVar[type[FileReaderStage]]

    def __post_init__(self) -> None:
        super().__init__()
        options: Any = self
        if options.task_type != "document":
            raise UsageError(f"{self.name}: task_type must be 'document', got {options.task_type!r}")
        _check_ids(self.name, options)
        self._parts()

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        parts, options = self._parts(), cast("Any", self)
        if options._generate_ids or options._assign_ids:
            return [*parts, AddPositionIds(_file_numbers(self.name, parts[0], bool(options._assign_ids)))]
        return parts

    def _parts(self) -> list[ProcessingStage[Any, Any]]:
        options: Any = self
        store = options.storage_options or (self.read_kwargs or {}).get("storage_options")
        files = FilePartitioningStage(
            self.file_paths,
            files_per_partition=self.files_per_partition,
            blocksize=self.blocksize,
            file_extensions=options.file_extensions,
            storage_options=store,
            limit=options.limit,
        )
        read_kwargs = self.read_kwargs
        if store:  # without keys
            options.storage_options = files.storage_options
            read_kwargs = {k: v for k, v in (read_kwargs or {}).items() if k != "storage_options"}
            self.read_kwargs = read_kwargs
        reader = with_hints(self.reader(self.fields, read_kwargs), self.hints)
        files.leave_out, files.one_per_file = self.leave_out, self.one_per_file
        return [files, reader]


@dataclass(repr=False)
class RowsReader(FileReader):
    """A reader with parameters in the order of Tamis; a subclass sets extensions, a name and the stage that reads."""

    file_extensions: Sequence[str] = ()
    task_type: str = "document"
    _generate_ids: bool = False
    _assign_ids: bool = False
    storage_options: dict[str, Any] | None = None
    limit: int | None = None
    name: str = "file_reader"


@dataclass(repr=False)
class ArrowReaderStage(FileReaderStage):
    """Rows of Arrow files."""

    name: str = "arrow_reader"
    formats: ClassVar[tuple[str, ...]] = ("arrow",)


@dataclass(repr=False)
class ArrowReader(RowsReader):
    """Read Arrow IPC files and streams (.arrow, .feather), such as those of Hugging Face datasets.

    Parameters as in JsonlReader.
    """

    file_extensions: Sequence[str] = suffixes("arrow")
    name: str = "arrow_reader"
    reader: ClassVar[type[FileReaderStage]] = ArrowReaderStage


@dataclass(repr=False)
class TextReaderStage(FileReaderStage):
    """Files of plain text."""

    name: str = "text_reader"
    formats: ClassVar[tuple[str, ...]] = ("text",)


@dataclass(repr=False)
class TextReader(RowsReader):
    """Read plain text, one document per file, with the fields `text` and `file_name`.

    Files are .txt, .text and .md, also compressed.

    Parameters as in JsonlReader. Files that are not UTF-8, or larger than max_record, are quarantined.
    """

    file_extensions: Sequence[str] = suffixes("text")
    name: str = "text_reader"
    reader: ClassVar[type[FileReaderStage]] = TextReaderStage


@dataclass(repr=False)
class DocumentReaderStage(FileReaderStage):
    """Any mix of JSONL, Parquet, Arrow and WARC files."""

    name: str = "document_reader"
    formats: ClassVar[tuple[str, ...]] = unasked_formats()


@dataclass(repr=False)
class DocumentReader(FileReader):
    """Read any mix of JSONL, Parquet, Arrow and WARC files. Parameters as in JsonlReader.

    `extract`: if there are WARC files, the text of their pages is extracted by this library ("resiliparse",
    "trafilatura", "justext") in a stage of its own, HtmlExtract; None: documents have the pages, as of WarcReader.
    """

    task_type: str = "document"
    file_extensions: Sequence[str] = suffixes()
    _generate_ids: bool = False
    _assign_ids: bool = False
    storage_options: dict[str, Any] | None = None
    limit: int | None = None
    name: str = "document_reader"
    extract: str | None = "resiliparse"
    reader: ClassVar[type[FileReaderStage]] = DocumentReaderStage

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        stages = super().decompose()
        if self.extract is not None and holds_records(stages[0]):
            stages.append(_satellites.load("stage.html_extract")(self.extract))
        return stages

    def taking_extraction(self) -> tuple[DocumentReader, list[ProcessingStage[Any, Any]]]:
        """Return the reader without the stage that extracts text, and that stage, if it has one."""
        stages = self.decompose()
        plain = copy.copy(self)
        plain.extract = None
        return plain, stages[len(plain.decompose()) :]


def holds_records(files: Any) -> bool:
    """Return True if some input file is one of records (WARC). Folders are searched up to the first such file."""
    files.reach()
    entries = [files.file_paths] if isinstance(files.file_paths, str) else list(files.file_paths)
    accepted = tuple(s for s in files.suffixes() if record_name(s))
    if not accepted:
        return False
    for entry in map(str, entries):
        if record_name(entry):
            return True
        if is_remote(entry):
            if not entry.lower().endswith(files.suffixes()) and _lists_any(entry, accepted):
                return True
        elif any(_has_file(path, accepted) for path in glob.glob(os.path.expanduser(entry), recursive=True) or [entry]):
            return True
    return False


def _lists_any(url: str, accepted: tuple[str, ...]) -> bool:
    from tamis.formats.input_files.listing import list_files

    try:
        return len(list_files(url, accepted, limit=1)) > 0
    except UsageError:  # nothing ends like that; what else is wrong, the run says
        return False


def _has_file(path: str, accepted: tuple[str, ...]) -> bool:
    if not os.path.isdir(path):
        return path.lower().endswith(accepted)
    for _, folders, names in os.walk(path, followlinks=False):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        if any(name.lower().endswith(accepted) and not name.startswith((".", "_")) for name in names):
            return True
    return False
