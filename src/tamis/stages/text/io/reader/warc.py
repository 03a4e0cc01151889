"""WarcReader: records of web archives as documents."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import ClassVar

from tamis._dataclasses import dataclass
from tamis.errors import MissingExtra, UsageError
from tamis.formats.registry import record_name, suffixes
from tamis.stages.text.io.reader.files import FileReaderStage, RowsReader

WARC_SUFFIXES = suffixes("warc")


@dataclass(repr=False)
class WarcReaderStage(FileReaderStage):
    """Records of WARC files, plain or compressed."""

    name: str = "warc_reader"
    formats: ClassVar[tuple[str, ...]] = ("warc",)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_html(self.name)


@dataclass(repr=False)
class WarcReader(RowsReader):
    """Read WARC files: .warc and .wet, plain or compressed (.warc.gz, .warc.zst with its dictionary).

    Responses, resources and conversions (WET) whose contents are text become documents with the fields `url`,
    `warc_id`, `source_id` (the name of the file), `warc_offset`, `date`, `status`, `content_type`, `charset`, `flaw`
    (what is wrong with the record, or null) and `content`: the page, decoded to text, with its markup. `HtmlExtract`
    makes it the `text`. Other records are counted by kind. Parameters as in JsonlReader. Needs the extra `html`.
    """

    file_extensions: Sequence[str] = WARC_SUFFIXES
    name: str = "warc_reader"
    reader: ClassVar[type[FileReaderStage]] = WarcReaderStage

    def __post_init__(self) -> None:
        other = [e for e in self.file_extensions if not record_name(e)]
        if other:
            raise UsageError(
                f"{self.name}: file_extensions: {other[0]!r} is no WARC file; use {', '.join(WARC_SUFFIXES)}"
            )
        super().__post_init__()


def require_html(what: str) -> None:
    """Raise MissingExtra unless the libraries for web pages are installed: a worker would notice too late."""
    if importlib.util.find_spec("resiliparse") is None:
        raise MissingExtra(what, "html")
