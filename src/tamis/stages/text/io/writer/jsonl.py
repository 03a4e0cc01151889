"""JsonlWriter: the usual last stage of a pipeline."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tamis.errors import UsageError, check_choice
from tamis.formats.compression.codecs import CODECS, SUFFIXES_TEXT
from tamis.stages.io import Writer, check_fields
from tamis.stages.text.io.options import jsonl_options
from tamis.stages.text.io.writer.at_once import WriteAtOnce
from tamis.stores.urls import is_bucket, output_url, path_of
from tamis.tasks import DocumentBatch, FileGroupTask

_MODES = ("ignore", "overwrite", "append", "error")


@dataclass(repr=False)
class JsonlWriter(Writer):
    """Write JSONL. Fields that nobody touched come out byte for byte.

    `file_extension` may carry a compression: "jsonl.gz", "jsonl.zst". `mode`: "ignore" goes on where an earlier run of the
    same pipeline stopped; "overwrite" starts over (only files that Tamis wrote are removed); "append" adds files to a folder
    that holds others; "error" refuses a folder that exists and is not empty.
    """

    path: str
    file_extension: str = "jsonl"
    write_kwargs: Mapping[str, Any] | None = None
    fields: Sequence[str] | None = None
    name: str = "jsonl_writer"
    mode: str = "ignore"
    append_mode_implemented: bool = False  # what a writer may say of itself; all can append here
    format = "jsonl"

    def __post_init__(self) -> None:
        self.path = output_place(self.name, self.path)
        self.fields = check_fields(self.name, self.fields)
        check_choice(f"{self.name}: mode", self.mode, _MODES)
        self.file_extension = self.file_extension.lstrip(".")
        self._check_format()

    def _check_format(self) -> None:
        self.write_kwargs, asked = jsonl_options(self.name, self.write_kwargs)
        if asked is not None and not self.file_extension.endswith("." + asked):
            self.file_extension += "." + asked
        base, _, codec = self.file_extension.partition(".")
        if base not in ("jsonl", "json", "ndjson") or (codec and codec not in CODECS):
            raise UsageError(
                f"{self.name}: file_extension must be jsonl, json or ndjson, followed by one of {SUFFIXES_TEXT} "
                f"if the output is to be compressed; got {self.file_extension!r}"
            )
        self.codec = codec or None

    def process(self, task: Any) -> FileGroupTask:
        """Write a batch now, whole or not at all, beside what is there; a run writes and commits by itself."""
        if not isinstance(task, DocumentBatch):
            raise UsageError(f"{self.name}: process() writes documents (DocumentBatch), got {type(task).__name__}")
        return self._at_once().process(task)

    def write_data(self, task: DocumentBatch, file_path: str) -> None:
        """Write a batch to this very file."""
        self._at_once().write_data(task, file_path)

    def _at_once(self) -> WriteAtOnce:
        mode = "ignore" if self.mode == "overwrite" else self.mode
        compression = str((self.write_kwargs or {}).get("compression") or "zstd")
        made = WriteAtOnce(self.path, self.file_extension, {}, self.fields, self.name, mode)
        made.format, made.codec, made.compression = self.format, self.codec, compression
        return made


def output_place(stage: str, path: Any) -> str:
    """Return the output location: an absolute local folder, or s3://bucket/path."""
    place: str = path_of(os.fspath(path))
    if is_bucket(place):
        return output_url(place)
    if "://" in place:
        raise UsageError(f"{stage}: {place}: nothing is written there; give a local folder, or s3://bucket/path")
    return os.path.abspath(os.path.expanduser(place))
