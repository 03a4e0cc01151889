"""TextReader: every file of plain text is a document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tamis.formats.registry import suffixes
from tamis.stages.text.io.reader.files import FileReader, FileReaderStage


@dataclass(repr=False)
class TextReaderStage(FileReaderStage):
    """Files of plain text."""

    name: str = "text_reader"
    formats: ClassVar[tuple[str, ...]] = ("text",)


@dataclass(repr=False)
class TextReader(FileReader):
    """Read plain text (.txt, .text, .md; also compressed), one document per file, with the fields `text` and `file_name`.

    Parameters as in JsonlReader. Files that are not UTF-8, or larger than max_record, go to quarantine.
    """

    file_extensions: Sequence[str] = suffixes("text")
    task_type: str = "document"
    _generate_ids: bool = False
    _assign_ids: bool = False
    storage_options: dict[str, Any] | None = None
    limit: int | None = None
    name: str = "text_reader"
    reader: ClassVar[type[FileReaderStage]] = TextReaderStage
