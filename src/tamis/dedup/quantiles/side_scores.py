"""Scores of an earlier run, by the paths of input files and the positions of documents in them (solver._ScoreTable)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tamis.errors import FormatError
from tamis.stores.urls import path_text

Array = NDArray[Any]
_CACHED = 8  # row groups


@dataclass(frozen=True)
class _RowGroup:
    """A row group: the first and last path in it, and the first and last offset."""

    number: int
    paths: tuple[str, str]
    offsets: tuple[int, int]


class SideScores:
    """The scores of a table, looked up a batch at a time; NaN for documents that it does not have."""

    def __init__(self, path: str, names: Sequence[str], paths: Sequence[str]) -> None:
        self._path, self._names = path, list(names)
        self._paths = [path_text(p) for p in paths]
        try:
            self._file = pq.ParquetFile(path, pre_buffer=False)
            self._groups = list(self._read_groups())
        except (pa.ArrowException, OSError, AttributeError, KeyError, ValueError) as exc:
            raise FormatError(f"{path}: no table of scores, or a damaged one ({exc})") from None
        if missing := sorted(set(self._names) - set(self._file.schema_arrow.names)):
            raise FormatError(
                f"{path} has no scores of {', '.join(missing)}; it has {self._file.schema_arrow.names[2:]}"
            )
        self._read = lru_cache(maxsize=_CACHED)(self._read_group)

    def _read_groups(self) -> Iterator[_RowGroup]:
        names = self._file.schema_arrow.names
        columns = names.index("path"), names.index("offset")
        for k in range(self._file.metadata.num_row_groups):
            stats = [self._file.metadata.row_group(k).column(c).statistics for c in columns]
            paths, offsets = ((s.min, s.max) for s in stats)
            yield _RowGroup(k, (str(paths[0]), str(paths[1])), (int(offsets[0]), int(offsets[1])))

    def _read_group(self, number: int) -> tuple[Array, Array, list[Array]]:
        table = self._file.read_row_group(number, columns=["path", "offset", *self._names], use_threads=False)
        scores = [table[name].cast(pa.float32()).to_numpy() for name in self._names]
        return np.array(table["path"].to_pylist(), object), table["offset"].to_numpy(), scores

    def of(self, file: Array, offset: Array) -> list[NDArray[np.float32]]:
        """Return the scores of documents by their position, one array for each name."""
        columns = [np.full(len(file), np.nan, np.float32) for _ in self._names]
        for number in np.unique(file).tolist():
            rows = np.flatnonzero(file == number)
            path, low, high = self._paths[number], int(offset[rows].min()), int(offset[rows].max())
            for group in self._groups:
                several = group.paths[0] != group.paths[1]
                if not group.paths[0] <= path <= group.paths[1] or (
                    not several and (group.offsets[1] < low or group.offsets[0] > high)
                ):
                    continue
                paths, offsets, scores = self._read(group.number)
                mine = np.flatnonzero(paths == path)
                known = offsets[mine]
                order = np.argsort(known, kind="stable")
                positions = np.minimum(np.searchsorted(known[order], offset[rows]), max(len(known) - 1, 0))
                if not len(known):
                    continue
                hit = known[order][positions] == offset[rows]
                for k, values in enumerate(scores):
                    columns[k][rows[hit]] = values[mine[order[positions[hit]]]]
        return columns
