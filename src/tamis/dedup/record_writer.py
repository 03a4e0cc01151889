"""RecordWriter: keys of documents as Arrow files, for the passes between which nothing else looks at them."""

from __future__ import annotations

from dataclasses import dataclass

from tamis.stages.text.io.writer import JsonlWriter


@dataclass(repr=False)
class RecordWriter(JsonlWriter):
    """Writes the columns of a key stage, uncompressed, so that a later pass can read any part of a column."""

    file_extension: str = "arrow"
    name: str = "record_writer"
    format = "columns"
    is_reported = False  # one pass of several

    def _check_format(self) -> None:
        self.write_kwargs = {}
