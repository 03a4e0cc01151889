"""JsonlWriter: the usual last stage of a pipeline."""

from __future__ import annotations

from tamis._dataclasses import dataclass
from tamis.errors import UsageError
from tamis.formats.compression.codecs import CODECS, SUFFIXES_TEXT
from tamis.stages.text.io.options import jsonl_options
from tamis.stages.text.io.writer.files import FileWriter


@dataclass(repr=False)
class JsonlWriter(FileWriter):
    """Write JSONL. Fields that no stage changed come out byte for byte.

    `file_extension` may include a compression: "jsonl.gz", "jsonl.zst". `mode`: "ignore" resumes an earlier run of the
    same pipeline; "overwrite" starts over (only files that Tamis wrote are removed); "append" adds files to a folder
    that holds others; "error" rejects a folder that is not empty.
    """

    file_extension: str = "jsonl"
    name: str = "jsonl_writer"
    format = "jsonl"

    def _check_format(self) -> None:
        self.write_kwargs, requested = jsonl_options(self.name, self.write_kwargs)
        if requested is not None and not self.file_extension.endswith("." + requested):
            self.file_extension += "." + requested
        base, _, codec = self.file_extension.partition(".")
        if base not in ("jsonl", "json", "ndjson") or (codec and codec not in CODECS):
            raise UsageError(
                f"{self.name}: file_extension must be jsonl, json or ndjson, followed by one of {SUFFIXES_TEXT} "
                f"if the output is to be compressed; got {self.file_extension!r}"
            )
        self.codec = codec or None
