"""What a deduplication decided: which documents go, for which ones, and how alike they are.

Kept in two forms. For people, `duplicates/*.parquet`: ids (AddId's: number of the file and offset in it), paths, similarity,
group size. For the pass that removes, `removal/*.npy`: the same by place, sorted, so that a worker reads only its own range.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tamis.dedup.records import Records

_CHUNK = 1 << 18


@dataclass
class Decisions:
    """Documents to be removed, by ascending number; `kept` is the document each resembles."""

    number: NDArray[np.uint32]
    kept: NDArray[np.uint32]
    similarity: NDArray[np.float32]
    size: NDArray[np.uint32]  # of the group, the kept document included

    def __len__(self) -> int:
        return len(self.number)

    @classmethod
    def of(cls, number: Any, kept: Any, similarity: Any, size: Any) -> Decisions:
        order = np.argsort(number, kind="stable")
        return cls(
            np.asarray(number, np.uint32)[order],
            np.asarray(kept, np.uint32)[order],
            np.asarray(similarity, np.float32)[order],
            np.asarray(size, np.uint32)[order],
        )


def write_removal(decisions: Decisions, records: Records, folder: str) -> None:
    """The removal table: places of the documents that go and of those that stay for them."""
    gone = records.gather(["file", "offset"], decisions.number)
    order = np.argsort(decisions.kept, kind="stable")
    stay = records.gather(["file", "offset"], decisions.kept[order])
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    columns = {
        "file": gone["file"], "offset": gone["offset"], "kept_file": stay["file"][back],
        "kept_offset": stay["offset"][back], "similarity": decisions.similarity,
    }  # fmt: skip
    _save(folder, columns)


def write_places(numbers: NDArray[np.uint32], records: Records, folder: str) -> None:
    """A table of places alone, for documents given by ascending numbers."""
    _save(folder, records.gather(["file", "offset"], numbers))


def _save(folder: str, columns: dict[str, NDArray[Any]]) -> None:
    """`starts`, the first row of each file, is written last: a table without it is not whole."""
    os.makedirs(folder, exist_ok=True)
    file = columns["file"]
    n_files = int(file.max()) + 1 if len(file) else 0
    columns["starts"] = np.searchsorted(file, np.arange(n_files + 1)).astype(np.int64)
    for name, values in columns.items():
        np.save(os.path.join(folder, name + ".npy"), values)


def write_duplicates(decisions: Decisions, folder: str, removal: str, paths: Sequence[str]) -> list[str]:
    """The table for people, from the removal table, a quarter of a million rows at a time."""
    os.makedirs(folder, exist_ok=True)
    at = {
        n: np.load(os.path.join(removal, n + ".npy"), mmap_mode="r")
        for n in ("file", "offset", "kept_file", "kept_offset")
    }
    names = pa.array(list(paths), pa.large_string())
    written = []
    for k, first in enumerate(range(0, len(decisions), _CHUNK)):
        part = slice(first, first + _CHUNK)
        table = pa.table(
            {
                "id": place_ids(at["file"][part], at["offset"][part]),
                "kept_id": place_ids(at["kept_file"][part], at["kept_offset"][part]),
                "similarity": pa.array(decisions.similarity[part]),
                "group_size": pa.array(decisions.size[part]),
                "path": names.take(pa.array(np.array(at["file"][part]))).dictionary_encode(),
                "kept_path": names.take(pa.array(np.array(at["kept_file"][part]))).dictionary_encode(),
            }
        )
        path = os.path.join(folder, f"part-{k:05d}.parquet")
        pq.write_table(table, path + ".tmp", compression="zstd")
        os.replace(path + ".tmp", path)
        written.append(path)
    return written


def place_ids(files: Any, offsets: Any) -> pa.Array:
    """The ids that AddId gives: number of the file, six digits at least, and the offset."""
    number = pc.utf8_lpad(pa.array(np.array(files)).cast(pa.large_string()), width=6, padding="0")
    return pc.binary_join_element_wise(
        number, pa.array(np.array(offsets)).cast(pa.large_string()), pa.scalar("_", pa.large_string())
    )
