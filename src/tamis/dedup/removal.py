"""Removing the documents that a deduplication found, by their place in the input."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tamis.errors import UsageError
from tamis.formats.scratch.stored_arrays import StoredArray, npy
from tamis.stages.base import ProcessingStage
from tamis.tasks import DocumentBatch

if TYPE_CHECKING:
    import numpy as np


@dataclass(repr=False)
class RemoveDuplicates(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Drops the documents of a removal table (tamis.dedup.decisions), each with the document it resembles as the reason.

    `paths` is a JSON file with the input files by number, to name the kept document; `threshold` is told with every verdict.
    """

    table: str
    paths: str
    rule: str = "duplicate"
    threshold: float | None = None
    name: str = "remove_duplicates"
    _names: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        if not os.path.isfile(os.path.join(self.table, "starts.npy")):
            raise UsageError(f"{self.name}: {self.table} is no removal table; run the deduplication that makes it")

    def setup(self, worker_metadata: Any = None) -> None:
        import json

        with open(self.paths, encoding="utf-8") as file:
            self._names = json.load(file)

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        import json

        import numpy as np

        gone, told = listed_rows(self.table, *batch.places(), ("kept_file", "kept_offset", "similarity"))
        if len(gone):
            values = [
                json.dumps({"kept": f"{self._names[f]}:{o}", "similarity": None if s != s else round(s, 4)})
                for f, o, s in zip(*told, strict=True)
            ]
            limits = {"min_similarity": self.threshold} if self.threshold is not None else {}
            self._note_drops(batch.serial[gone], self.rule, values, limits)
        keep = np.ones(batch.num_items, bool)
        keep[gone] = False
        return batch.filter(keep)


def listed_rows(
    folder: str, files: np.ndarray[Any, Any], offsets: np.ndarray[Any, Any], wanted: Sequence[str] = ()
) -> tuple[np.ndarray[Any, Any], list[list[Any]]]:
    """Which of these documents (in the order of the input) a table of places lists, and the wanted columns of those."""
    import numpy as np

    found = [np.empty(0, np.int64)]
    told: list[list[Any]] = [[] for _ in wanted]
    for file in np.unique(files).tolist():
        mine = np.flatnonzero(files == file)
        rows, columns = rows_of_table(folder, file, offsets[mine], wanted)
        found.append(mine[rows])
        for all_values, values in zip(told, columns, strict=True):
            all_values += values
    return np.concatenate(found), told


def rows_of_table(
    folder: str, file: int, offsets: np.ndarray[Any, Any], wanted: Sequence[str]
) -> tuple[np.ndarray[Any, Any], list[list[Any]]]:
    """Which of these offsets (ascending, of one file) a table of places lists, and the wanted columns of those."""
    import numpy as np

    def column(name: str) -> StoredArray:
        return npy(os.path.join(folder, name + ".npy"))

    starts = column("starts")
    if file < 0 or file + 1 >= len(starts) or not len(offsets):
        return np.empty(0, np.int64), [[] for _ in wanted]
    first, last = int(starts[file]), int(starts[file + 1])
    places = column("offset")
    a = places.search(offsets.min(), first, last)
    b = places.search(offsets.max(), a, last, right=True)
    listed = places.read(a, b)  # the range of this batch
    rows = np.flatnonzero(np.isin(offsets, listed))
    at = np.searchsorted(listed, offsets[rows])
    return rows, [column(name).read(a, b)[at].tolist() for name in wanted]
