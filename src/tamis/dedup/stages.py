"""Stages that all kinds of deduplication share: writing records of documents, and removing those that a table lists."""

from __future__ import annotations

import json
import os
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

from tamis._dataclasses import dataclass
from tamis._lazy import np
from tamis.errors import UsageError
from tamis.stages.base import ProcessingStage
from tamis.stages.text.io.writer import JsonlWriter
from tamis.stages.traits import StageTraits
from tamis.stores.scratch_files import exists
from tamis.tasks import DocumentBatch

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


class PositionTableStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Looks its documents up in a position table, whose folder (`table`) must exist when the stage is made."""

    table: str

    def __post_init__(self) -> None:
        if not exists(os.path.join(self.table, "starts.npy")):
            raise UsageError(f"{self.name}: {self.table} is no table of places; run the deduplication that makes it")

    def listed(self, batch: DocumentBatch, *names: str) -> tuple[Array, list[Array]]:
        """Return the rows of the batch that the table lists, and the requested columns of these."""
        from tamis.dedup.position_table import listed_rows

        return listed_rows(self.table, *batch.places(), names)


def without(batch: DocumentBatch, rows: Array) -> DocumentBatch:
    """Return the batch without these rows."""
    keep = np.ones(batch.num_items, bool)
    keep[rows] = False
    return batch.filter(keep)


@dataclass(repr=False)
class RemoveDuplicates(PositionTableStage):
    """Drops the documents of a removal table (decisions.py), each with the document it resembles as the reason.

    `paths` is a JSON file with the input files by number, to name the kept document; `threshold` is reported with
    every verdict.
    """

    table: str
    paths: str
    rule: str = "duplicate"
    threshold: float | None = None
    name: str = "remove_duplicates"
    traits: ClassVar[StageTraits] = StageTraits(removes_duplicates=True)
    _names: list[str] = field(default_factory=list, init=False)

    def setup(self, worker_metadata: Any = None) -> None:
        with open(self.paths, encoding="utf-8") as file:
            self._names = json.load(file)

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        rows, columns = self.listed(batch, "kept_file", "kept_offset", "similarity")
        if len(rows):
            self._note_scores("similarity", columns[2])
            values = [
                json.dumps({"kept": f"{self._names[f]}:{o}", "similarity": None if s != s else round(s, 4)})
                for f, o, s in zip(*(column.tolist() for column in columns), strict=True)
            ]
            limits = {"min_similarity": self.threshold} if self.threshold is not None else {}
            self._note_drops(batch.serial[rows], self.rule, values, limits)
        return without(batch, rows)


@dataclass(repr=False)
class RecordWriter(JsonlWriter):
    """Writes the columns of a key stage, uncompressed, so that a later pass can read any part of a column.

    Not `_is_synced`: files that are removed at the end of the same call need not wait for the disk.
    """

    file_extension: str = "arrow"
    name: str = "record_writer"
    format = "columns"
    is_reported = False  # one pass of several
    _is_synced: bool = True

    @property
    def is_synced(self) -> bool:
        return self._is_synced

    def _check_format(self) -> None:
        self.write_kwargs = {}
