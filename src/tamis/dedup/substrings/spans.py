"""Ranges of bytes that are repeated, written in the order in which they are found, read by ranges of documents.

Also decides which bytes of which documents are removed, and where the first copy of each is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tamis.formats.scratch.spilled import Spilled

Array = NDArray[Any]
NO_DOCUMENT = 0xFFFFFFFF
SPAN = np.dtype(
    [("doc", "<u4"), ("start", "<u4"), ("end", "<u4"), ("kept", "<u4"), ("kept_start", "<u4"), ("count", "<u4")]
)
"""Bytes [start, end) of a document are repeated; they begin at `kept_start` of the document `kept` for the first time.

`kept` NO_DOCUMENT: they are those of windows that are the first of their class. `count`: how often they occur.
"""
BYTES_PER_SPAN = 220  # of a range of documents, while it is sorted and joined


class SpanFiles:
    """Spans on disk by ranges of documents; `cuts`: the first document of each range, and the number of documents.

    Spans of documents before `first` are not stored: these are of an index, and stay as they are.
    """

    def __init__(self, folder: str, cuts: Array | list[int], fresh: bool = True, first: int = 0) -> None:
        self._spilled, self._cuts, self._first = Spilled(folder, fresh), np.asarray(cuts, np.int64), first

    def add(self, spans: Array) -> None:
        """Append spans in any order."""
        if self._first:
            spans = spans[spans["doc"] >= self._first]
        which = np.searchsorted(self._cuts, spans["doc"], side="right") - 1
        if len(self._cuts) == 2:
            self._spilled.add(0, spans)
            return
        order = np.argsort(which, kind="stable")
        bounds = np.searchsorted(which[order], np.arange(len(self._cuts)))
        for r in np.flatnonzero(np.diff(bounds)).tolist():
            self._spilled.add(r, spans[order[bounds[r] : bounds[r + 1]]])

    def read(self, r: int) -> Array:
        return self._spilled.read(r, SPAN)


def make_spans(doc: Array, start: Array, end: Array, kept: Any, kept_start: Any, count: Any) -> Array:
    spans = np.empty(len(doc), SPAN)
    spans["doc"], spans["start"], spans["end"] = doc, start, end
    spans["kept"], spans["kept_start"], spans["count"] = kept, kept_start, count
    return spans


@dataclass(frozen=True)
class Removed:
    """Bytes that go, by document and position; those of one row are in the document `kept` at `kept_start`, too."""

    doc: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    kept: NDArray[np.int64]
    kept_start: NDArray[np.int64]
    count: NDArray[np.int64]


def removed(parts: Iterable[Array], keep_first: bool) -> Removed:
    """Return the bytes that go: all that is repeated, without the first copies if these are kept."""
    spans = np.concatenate([np.empty(0, SPAN), *parts])
    is_first = spans["kept"] == NO_DOCUMENT
    firsts, spans = spans[is_first], spans[~is_first]
    spans = spans[np.lexsort((spans["end"], spans["start"], spans["doc"]))]
    starts, ends = _joined(*_ends(spans))
    if keep_first and len(firsts):
        firsts = firsts[np.lexsort((firsts["start"], firsts["doc"]))]
        starts, ends = _without(starts, ends, *_joined(*_ends(firsts)))
    return _described(spans, starts, ends)


def _ends(spans: Array) -> tuple[Array, Array]:
    """Return start and end as numbers that order all bytes of all documents."""
    doc = spans["doc"].astype(np.uint64) << np.uint64(32)
    return doc + spans["start"], doc + spans["end"]


def _joined(starts: Array, ends: Array) -> tuple[Array, Array]:
    """Return the union of ranges that are sorted by their starts; ranges that touch become one."""
    if not len(starts):
        return starts, ends
    reach = np.maximum.accumulate(ends)
    new = np.concatenate([[True], starts[1:] > reach[:-1]])
    # Documents are 2**32 apart, and none is that long: ranges of two documents never touch.
    return starts[new], reach[np.concatenate([new[1:], [True]])]


def _without(starts: Array, ends: Array, other_starts: Array, other_ends: Array) -> tuple[Array, Array]:
    """Return the bytes of ranges that are in none of the other ranges; both are sorted and do not overlap."""
    edges = np.concatenate([starts, ends, other_starts, other_ends])
    one, two = np.ones(len(starts), np.int8), np.full(len(other_starts), 2, np.int8)
    steps = np.concatenate([one, -one, two, -two])
    order = np.argsort(edges, kind="stable")
    edges, state = edges[order], np.cumsum(steps[order].astype(np.int64))
    # At the last of several edges at one place the state is that of the bytes after it.
    alone = np.flatnonzero((state[:-1] == 1) & (edges[1:] > edges[:-1]))
    begin, end = edges[alone], edges[alone + 1]
    return _joined(begin, end)


def _described(spans: Array, starts: Array, ends: Array) -> Removed:
    """Find where the first bytes of each range occur first."""
    first, last = _ends(spans)
    reach = np.maximum.accumulate(last) if len(last) else last
    # The span that reaches furthest of those that begin at or before a range covers its first byte.
    furthest = np.maximum.accumulate(np.where(last == reach, np.arange(len(last)), 0)) if len(last) else last
    row = (
        furthest[np.searchsorted(first, starts, side="right") - 1].astype(np.int64)
        if len(starts)
        else np.empty(0, np.int64)
    )
    mask = np.uint64(0xFFFFFFFF)
    start = (starts & mask).astype(np.int64)
    chosen = spans[row]
    return Removed(
        (starts >> np.uint64(32)).astype(np.int64),
        start,
        (ends & mask).astype(np.int64),
        chosen["kept"].astype(np.int64),
        chosen["kept_start"].astype(np.int64) + start - chosen["start"],
        chosen["count"].astype(np.int64),
    )
