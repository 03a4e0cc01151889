"""ArrowReader: rows of Arrow files as documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tamis.formats.registry import suffixes
from tamis.stages.text.io.reader.files import FileReader, FileReaderStage


@dataclass(repr=False)
class ArrowReaderStage(FileReaderStage):
    """Rows of Arrow files."""

    name: str = "arrow_reader"
    formats: ClassVar[tuple[str, ...]] = ("arrow",)


@dataclass(repr=False)
class ArrowReader(FileReader):
    """Read Arrow IPC files and streams (.arrow, .feather), such as Hugging Face datasets keep them. Parameters as in JsonlReader."""

    file_extensions: Sequence[str] = suffixes("arrow")
    task_type: str = "document"
    _generate_ids: bool = False
    _assign_ids: bool = False
    storage_options: dict[str, Any] | None = None
    limit: int | None = None
    name: str = "arrow_reader"
    reader: ClassVar[type[FileReaderStage]] = ArrowReaderStage
