"""The stages of the demo: ordinary ProcessingStages, each dropping one kind of document. No Python loop over documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tamis.stages.base import ProcessingStage
from tamis.tasks import MISSING, NULL, TEXT, DocumentBatch


@dataclass(repr=False)
class _TextStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    text_field: str = "text"

    def inputs(self) -> Any:
        return [], [self.text_field]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task.filter(self.keep(task))

    def keep(self, task: DocumentBatch) -> Any:
        """A mask: which documents stay."""
        raise NotImplementedError


@dataclass(repr=False)
class DropMissing(_TextStage):
    """Documents that have no such field."""

    name: str = "text is missing"

    def keep(self, task: DocumentBatch) -> Any:
        return task.kinds(self.text_field) != MISSING


@dataclass(repr=False)
class DropNull(_TextStage):
    """Documents whose text is null."""

    name: str = "text is null"

    def keep(self, task: DocumentBatch) -> Any:
        return task.kinds(self.text_field) != NULL


@dataclass(repr=False)
class DropNonString(_TextStage):
    """Documents whose text is a number, a list or an object."""

    name: str = "text is no string"

    def keep(self, task: DocumentBatch) -> Any:
        return task.kinds(self.text_field) == TEXT


@dataclass(repr=False)
class DropJunk(_TextStage):
    """Documents without a single letter or digit."""

    name: str = "text is junk"

    def keep(self, task: DocumentBatch) -> Any:
        import numpy as np
        import pyarrow.compute as pc

        text = task.texts(self.text_field)
        return np.asarray(pc.fill_null(pc.match_substring_regex(text, r"[\pL\pN]"), False))


@dataclass(repr=False)
class Fingerprint(_TextStage):
    """The 128-bit hash of each text and the place of its document, instead of the document."""

    name: str = "fingerprint"

    def outputs(self) -> Any:
        return [], ["hi", "lo", "file", "offset"]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        import pyarrow as pa

        from tamis.kernels.buffers import string_buffers
        from tamis.kernels.hash128 import hash_arrow_strings

        parts = string_buffers(task.texts(self.text_field))
        hi, lo = hash_arrow_strings(parts.offsets, parts.data, parts.validity)
        file, offset = task.places()
        columns = {"hi": hi.view("int64"), "lo": lo.view("int64"), "file": file.astype("int64"), "offset": offset}
        for name, values in columns.items():
            task = task.with_column(name, pa.array(values))
        return task.select(list(columns))


@dataclass(repr=False)
class DropListed(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Documents whose place (file, offset) is in a listing that `tamis.demo.duplicates` made."""

    listing: str
    name: str = "text is a duplicate"

    def setup(self, worker_metadata: Any = None) -> None:
        import pyarrow.parquet as pq

        table = pq.ParquetFile(self.listing).read(use_threads=False)
        self._listed = _places(table["file"].to_numpy(), table["offset"].to_numpy())

    def process(self, task: DocumentBatch) -> DocumentBatch:
        import numpy as np

        return task.filter(~np.isin(_places(*task.places()), self._listed))


def _places(file: Any, offset: Any) -> Any:
    """File number and offset as one comparable value (a demo has few files, of less than 2**40 bytes each)."""
    return (file.astype("int64") << 40) | offset
