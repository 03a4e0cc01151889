"""The base class of custom writers: subclass BaseWriter for a format that Tamis does not write.

In a run, the built-in writers do not use it: the engine writes and commits their files itself.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from tamis import files
from tamis._dataclasses import dataclass
from tamis.errors import UsageError, check_choice
from tamis.stages.base import ProcessingStage
from tamis.stages.io import check_fields
from tamis.tasks import DocumentBatch, FileGroupTask

_MODES = ("ignore", "append", "error")


@dataclass(repr=False)
class BaseWriter(ProcessingStage[DocumentBatch, FileGroupTask]):
    """Writes a file for each batch, completely or not at all, by `write_data`; its name follows from its documents.

    A retry of the same documents replaces its own file. `mode`: "ignore" and "append" write next to existing files,
    "error" rejects a folder that is not empty. `append_mode_implemented` is a parameter of NeMo Curator; every writer
    can append.
    """

    path: str
    file_extension: Any = ""
    write_kwargs: Mapping[str, Any] = field(default_factory=dict)
    fields: Sequence[str] | None = None
    name: str = "BaseWriter"
    mode: str = "ignore"
    append_mode_implemented: bool = False

    is_sink_stage = True
    columns_out = ()

    def __post_init__(self) -> None:
        if "://" in os.fspath(self.path):
            raise UsageError(f"{self.name}: {self.path}: cannot write to remote paths; give a local folder")
        if self.mode == "overwrite":
            raise UsageError(
                f"{self.name}: mode 'overwrite' would also remove what an interrupted run of the same job wrote; empty "
                "the folder before the job, e.g. with tamis.utils.file_utils.create_or_overwrite_dir"
            )
        check_choice(f"{self.name}: mode", self.mode, _MODES)
        self.path = os.path.abspath(os.path.expanduser(self.path))
        if self.mode == "error" and os.path.isdir(self.path) and os.listdir(self.path):
            raise UsageError(f"{self.name}: {self.path} is not empty; choose another folder, or mode='append'")
        self.fields = check_fields(self.name, self.fields)

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], list(self.fields or [])

    def get_file_extension(self) -> str:
        """Return the extension of file names, without a dot."""
        return str(self.file_extension).lstrip(".")

    @abstractmethod
    def write_data(self, task: DocumentBatch, file_path: str) -> None:
        """Write the documents of a batch into a new file."""

    def process(self, task: DocumentBatch) -> FileGroupTask:
        batch = task if self.fields is None else task.select(list(self.fields))
        os.makedirs(self.path, exist_ok=True)
        final = os.path.join(self.path, f"{self.name_of(task)}.{self.get_file_extension()}")
        part = files.unguessable(self.path, f".{os.path.basename(final)}.")
        try:
            self.write_data(batch, part)
            files.finish(part, final)
        except BaseException:
            files.remove(part)
            raise
        return FileGroupTask(
            task.dataset_name, [final], task._stage_perf, {**task._metadata, "format": self.get_file_extension()}
        )

    def name_of(self, task: DocumentBatch) -> str:
        """Return the file name for a batch, the same for the same documents from the same input location.

        A retry thus replaces its own files. If the origin of the documents is unknown, return a new name: equal
        batches must not replace each other.
        """
        numbers, offsets = task.places()
        sources = task._metadata.get("source_files", ())
        if not sources and not (numbers >= 0).any():
            return uuid.uuid4().hex[:24]
        digest = hashlib.blake2b(numbers.tobytes() + offsets.tobytes(), digest_size=12)
        for text in (*sources, *self._identity_of(task)):
            data = b"" if text is None else str(text).encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "little") + data)
        return digest.hexdigest()

    def _identity_of(self, task: DocumentBatch) -> list[Any]:
        """Return values that differ between batches of the same source."""
        columns = task.get_columns()
        return task.column(columns[0]).to_pylist() if columns else []
