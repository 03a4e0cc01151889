"""TextReader: every file of plain text is a document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tamis.formats.registry import suffixes
from tamis.stages.text.io.reader.files import FileReaderStage, RowsReader


@dataclass(repr=False)
class TextReaderStage(FileReaderStage):
    """Files of plain text."""

    name: str = "text_reader"
    formats: ClassVar[tuple[str, ...]] = ("text",)


@dataclass(repr=False)
class TextReader(RowsReader):
    """Read plain text (.txt, .text, .md; also compressed), one document per file, with the fields `text` and `file_name`.

    Parameters as in JsonlReader. Files that are not UTF-8, or larger than max_record, go to quarantine.
    """

    file_extensions: Sequence[str] = suffixes("text")
    name: str = "text_reader"
    reader: ClassVar[type[FileReaderStage]] = TextReaderStage
