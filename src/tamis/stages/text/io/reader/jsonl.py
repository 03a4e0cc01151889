"""JsonlReader: the usual first stage of a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, ClassVar

from tamis._dataclasses import dataclass
from tamis.stages.file_partitioning import JSONL_SUFFIXES
from tamis.stages.text.io.reader.files import FileReader, FileReaderStage


@dataclass(repr=False)
class JsonlReaderStage(FileReaderStage):
    """One document per line; plain or compressed."""

    name: str = "jsonl_reader"
    formats: ClassVar[tuple[str, ...]] = ("jsonl",)


@dataclass(repr=False)
class JsonlReader(FileReader):
    """Read JSONL files: a folder, a glob, a file or a list of these.

    `blocksize` bounds the decoded bytes of one partition (large files are split), `files_per_partition` groups whole
    files; with neither, each file is one partition, as far as it fits its worker (512 MB at most). `fields`: the
    documents have only these; a mapping ({"n": "int64"}) also declares the types that they have in `batch.data`, which
    are found by a scan otherwise.
    `_generate_ids`, `_assign_ids`: add a column of integer ids (ids.py).
    """

    task_type: str = "document"
    file_extensions: Sequence[str] = JSONL_SUFFIXES
    _generate_ids: bool = False
    _assign_ids: bool = False
    name: str = "jsonl_reader"
    storage_options: dict[str, Any] | None = None
    limit: int | None = None
    one_per_file: bool = field(default=True, init=False, repr=False)
    reader: ClassVar[type[FileReaderStage]] = JsonlReaderStage
