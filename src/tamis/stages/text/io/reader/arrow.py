"""ArrowReader: rows of Arrow files as documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tamis.formats.registry import suffixes
from tamis.stages.text.io.reader.files import FileReaderStage, RowsReader


@dataclass(repr=False)
class ArrowReaderStage(FileReaderStage):
    """Rows of Arrow files."""

    name: str = "arrow_reader"
    formats: ClassVar[tuple[str, ...]] = ("arrow",)


@dataclass(repr=False)
class ArrowReader(RowsReader):
    """Read Arrow IPC files and streams (.arrow, .feather), such as Hugging Face datasets keep them. Parameters as in JsonlReader."""

    file_extensions: Sequence[str] = suffixes("arrow")
    name: str = "arrow_reader"
    reader: ClassVar[type[FileReaderStage]] = ArrowReaderStage
