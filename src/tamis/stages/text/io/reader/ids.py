"""Integer ids of documents: a function of file and position, independent of how the input is split into partitions.

The id of a document is the number of its file times 2^40, plus the offset of its record (or the row of a Parquet file).
An id generator assigns numbers to files: `CURRENT` is that of this program, which `create_id_generator_actor` creates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tamis._dataclasses import dataclass
from tamis._lazy import np, pa
from tamis.errors import UsageError
from tamis.stages.base import ProcessingStage
from tamis.tasks import DocumentBatch

CURATOR_DEDUP_ID_STR = "_curator_dedup_id"
OFFSET_BITS = 40  # files of up to 1 TB, 8 million of them


class FileNumbers:
    """Files by number, in the order in which they were first seen."""

    def __init__(self, files: Sequence[str] = ()) -> None:
        self.files = list(files)

    def of(self, paths: Sequence[str], known_only: bool) -> list[int]:
        """Return the numbers of these files; new files get the next ones, unless `known_only`."""
        numbers = {path: i for i, path in enumerate(self.files)}
        for path in paths:
            if path not in numbers:
                if known_only:
                    raise UsageError(
                        f"{path} has no ids: the id generator knows {len(self.files)} other files; give the input that "
                        "the ids were assigned for, and the generator that was written then"
                    )
                numbers[path] = len(self.files)
                self.files.append(path)
        return [numbers[path] for path in paths]


CURRENT: list[FileNumbers] = []  # at most one


@dataclass(repr=False)
class AddPositionIds(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Adds the column of ids. `numbers`: those of the input files in the order of the run; None: 0, 1, ..."""

    numbers: list[int] | None = None
    name: str = "position_ids"
    columns_out = (CURATOR_DEDUP_ID_STR,)

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        files, offsets = batch.places()
        if self.numbers is not None:
            files = np.asarray(self.numbers, np.int64)[files]
        return batch.with_column(CURATOR_DEDUP_ID_STR, pa.array(ids_of(files, offsets)))


def ids_of(files: Any, offsets: Any) -> np.ndarray[Any, Any]:
    """Return the ids of documents at these positions."""
    ids: np.ndarray[Any, Any] = (np.asarray(files, np.int64) << OFFSET_BITS) | np.asarray(offsets, np.int64)
    return ids


def positions_of(ids: Any) -> tuple[Any, Any]:
    """Return the files and offsets that ids stand for."""
    array = np.asarray(ids, np.int64)
    return array >> OFFSET_BITS, array & ((1 << OFFSET_BITS) - 1)
