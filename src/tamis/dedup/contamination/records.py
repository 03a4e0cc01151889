"""The record files of decontamination (stages.FindOverlaps), read batch by batch in the order of the input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tamis.dedup.records import runs_of
from tamis.formats.arrow.column_places import BatchPlaces
from tamis.formats.scratch.stored_arrays import read_into

Array = NDArray[Any]
HIT = np.dtype([("ngram", "<u4"), ("start", "<u4"), ("end", "<u4"), ("token", "<u4"), ("token_end", "<u4")])
"""An overlap: the row of the n-gram in the table, bytes of the text, and the number of its first and last token."""
_FACTS = ("file", "offset", "n_tokens")
_HITS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class _OverlapBatch:
    path: str
    n_documents: int
    at: dict[str, tuple[int, Any]]  # place and type of each column
    n_hits: int


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
                bounds = _read(run, "bounds", run.n_documents + 1) // HIT.itemsize
                for first in range(0, run.n_hits, _HITS_AT_ONCE):
                    end = min(run.n_hits, first + _HITS_AT_ONCE)
                    ngram = _read(run, "hits", end - first, first)["ngram"]
                    yield ngram, np.searchsorted(bounds, np.arange(first, end), side="right") - 1

    def __iter__(self) -> Iterator[DocumentHits]:
        for run in self._runs:
            file, offset, n_tokens = (_read(run, name, run.n_documents) for name in _FACTS)
            bounds = _read(run, "bounds", run.n_documents + 1) // HIT.itemsize
            yield DocumentHits(file, offset, n_tokens, bounds, _read(run, "hits", run.n_hits))


def _run_of(batch: BatchPlaces, first: tuple[int, int]) -> _OverlapBatch:
    at: dict[str, tuple[int, Any]] = {name: (batch.values(name).offset, batch.values(name).kind) for name in _FACTS}
    ends = batch.ends("hits")
    n_hits = int(ends[batch.n_rows]) // HIT.itemsize
    at["bounds"] = ends.offset, ends.kind
    if n_hits:
        at["hits"] = batch.data_at("hits"), HIT
    return _OverlapBatch(batch.path, batch.n_rows, at, n_hits)


def _read(run: _OverlapBatch, name: str, n: int, first: int = 0) -> Array:
    if not n:
        return np.empty(0, HIT if name == "hits" else run.at[name][1])
    offset, kind = run.at[name]
    out = np.empty(n, kind)
    read_into(run.path, offset + first * kind.itemsize, out.view(np.uint8))
    return out
