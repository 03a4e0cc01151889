"""The record files of decontamination (stages.FindOverlaps), read batch by batch in the order of the input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tamis.dedup.records import StoredColumn, StoredColumns, runs_of
from tamis.formats.arrow.column_places import BatchPlaces

Array = NDArray[Any]
HIT = np.dtype([("ngram", "<u4"), ("start", "<u4"), ("end", "<u4"), ("token", "<u4"), ("token_end", "<u4")])
"""An overlap: the row of the n-gram in the table, bytes of the text, and the number of its first and last token."""
_FACTS = ("file", "offset", "n_tokens")
_HITS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class _OverlapBatch:
    n_documents: int
    n_hits: int
    stored: StoredColumns


@dataclass(frozen=True)
class DocumentHits:
    """Documents of one record batch. `bounds[k]:bounds[k + 1]` are the hits of document k."""

    file: Array
    offset: Array
    n_tokens: Array
    bounds: Array
    hits: Array


class OverlapRecords:
    """All record batches of the first pass."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._runs: list[_OverlapBatch] = runs_of(paths, "a record file of decontamination", _run_of)
        self.n_documents = sum(run.n_documents for run in self._runs)
        self.n_hits = sum(run.n_hits for run in self._runs)

    def iter_hits(self) -> Iterator[tuple[Array, Array]]:
        """Yield (n-grams, numbers of their documents within the record batch), at most some million at a time."""
        for run in self._runs:
            if run.n_hits:
                bounds = run.stored.read("bounds", 0, run.n_documents + 1) // HIT.itemsize
                for first in range(0, run.n_hits, _HITS_AT_ONCE):
                    end = min(run.n_hits, first + _HITS_AT_ONCE)
                    ngram = run.stored.read("hits", first, end)["ngram"]
                    yield ngram, np.searchsorted(bounds, np.arange(first, end), side="right") - 1

    def __iter__(self) -> Iterator[DocumentHits]:
        for run in self._runs:
            file, offset, n_tokens = (run.stored.read(name, 0, run.n_documents) for name in _FACTS)
            bounds = run.stored.read("bounds", 0, run.n_documents + 1) // HIT.itemsize
            yield DocumentHits(file, offset, n_tokens, bounds, run.stored.read("hits", 0, run.n_hits))


def _run_of(batch: BatchPlaces, first: tuple[int, int]) -> _OverlapBatch:
    stored = StoredColumns.of(batch, _FACTS)
    ends = batch.ends("hits")
    n_hits = int(ends[batch.n_rows]) // HIT.itemsize
    stored.columns["bounds"] = StoredColumn(ends.offset, ends.kind)
    stored.columns["hits"] = StoredColumn(batch.data_at("hits") if n_hits else 0, HIT)
    return _OverlapBatch(batch.n_rows, n_hits, stored)
