"""Rules of decontamination: which documents count as contaminated by an item, and which spans are cut.

A run is a sequence of windows, each one word further in the document and in the item. An item contaminates a document
whose longest run with it has at least `min_words` words, and which holds at least `min_share` of the n-grams of the
item. Windows of excepted n-grams do not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tamis.dedup.contamination.index import AS_A_WHOLE, TOKEN_MASK, Posting
from tamis.dedup.contamination.records import HIT

if TYPE_CHECKING:
    from tamis.dedup.contamination.index import EvaluationIndex
    from tamis.dedup.contamination.limits import Limits

Array = NDArray[Any]
_REMEMBERED = 1 << 16  # n-grams, and items
_MOST_OPEN = 1024  # runs, before those that have ended are forgotten


@dataclass(frozen=True)
class Overlap:
    """Overlap of a document with one item: the longest run in words and in bytes of the text, and its windows."""

    item: int
    words: int
    share: float
    start: int
    end: int
    place: int  # in the texts of the index, where the run begins
    windows: Array  # of the document's hits
    is_whole: bool = False  # the item is short: it matches as a whole or not at all

    def is_contamination(self, limits: Limits) -> bool:
        return self.is_whole or (self.words >= limits.min_words and self.share >= limits.min_share)


class Postings:
    """A cache of the items of n-grams, for one index."""

    def __init__(self, index: EvaluationIndex) -> None:
        self._index = index
        self._of_ngram: dict[int, list[Posting]] = {}
        self._items: dict[int, Any] = {}

    def of(self, ngram: int) -> list[Posting]:
        """Return the items with an n-gram."""
        if ngram not in self._of_ngram:
            if len(self._of_ngram) >= _REMEMBERED:
                self._of_ngram.clear()
            self._of_ngram[ngram] = self._index.postings(ngram)
        return self._of_ngram[ngram]

    def item(self, number: int) -> Any:
        """Return an item (index.ITEM)."""
        if number not in self._items:
            if len(self._items) >= _REMEMBERED:
                self._items.clear()
            self._items[number] = self._index.item(number)
        return self._items[number]


def overlaps_of(postings: Postings, hits: Array, excepted: Array) -> list[Overlap]:
    """Return what one document shares with each item. `hits`: records.HIT, in the order of the text."""
    counted = np.flatnonzero(~np.isin(hits["ngram"], excepted)) if len(excepted) else np.arange(len(hits))
    rows = [
        (p.item, int(hits["token"][w]), p.place, p.token, int(w))
        for w in counted.tolist()
        for p in postings.of(int(hits["ngram"][w]))
    ]
    if not rows:
        return []
    table = np.array(sorted(rows), np.int64)
    ends = [*(np.flatnonzero(np.diff(table[:, 0])) + 1).tolist(), len(table)]
    overlaps, first = [], 0
    for end in ends:
        overlaps.append(_overlap(postings, hits, table[first:end]))
        first = end
    return overlaps


def _overlap(postings: Postings, hits: Array, mine: Array) -> Overlap:
    """Return the overlap with one item. `mine`: (item, token, place, its token, window), by token and place."""
    item = int(mine[0, 0])
    about = postings.item(item)
    share = len(np.unique(mine[:, 2])) / max(1, int(about["n_ngrams"]))
    best = (0, 0, 0, 0)  # words, minus the first token, the rows of `mine` with the first and last window
    # The first row of the run that continues with the next token of the text and this token of the item.
    open_runs: dict[tuple[int, int], int] = {}
    tokens, item_tokens = mine[:, 1].tolist(), mine[:, 3].tolist()
    for i, (token, item_token) in enumerate(zip(tokens, item_tokens, strict=True)):
        first = open_runs.pop((token, item_token), i)
        open_runs[token + 1, (item_token + 1) & TOKEN_MASK] = first
        words = int(hits["token_end"][mine[i, 4]]) - tokens[first]
        if (words, -tokens[first]) > best[:2]:
            best = (words, -tokens[first], first, i)
        if len(open_runs) > _MOST_OPEN:
            open_runs = {key: row for key, row in open_runs.items() if key[0] >= token}
    begin, end = hits[mine[best[2], 4]], hits[mine[best[3], 4]]
    return Overlap(
        item,
        best[0],
        min(1.0, share),
        int(begin["start"]),
        int(end["end"]),
        int(mine[best[2], 2]),
        np.unique(mine[:, 4]),
        int(about["kind"]) == AS_A_WHOLE,
    )


def merged(starts: Array, ends: Array) -> NDArray[np.int64]:
    """Return the union of [start, end) ranges, as rows of (start, end).

    >>> merged(np.array([5, 0, 2]), np.array([9, 3, 4])).tolist()
    [[0, 4], [5, 9]]
    """
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    new = np.flatnonzero(np.concatenate([[True], starts[1:] > reach[:-1]])) if len(starts) else np.empty(0, np.int64)
    last = np.append(new[1:], len(starts)) - 1 if len(new) else new
    return np.stack([starts[new], reach[last]], axis=1).astype(np.int64) if len(new) else np.empty((0, 2), np.int64)


def cut_spans(data: bytes, spans: Array) -> bytes:
    """Return the text without these spans.

    >>> cut_spans(b"ab cd ef", np.array([[3, 5]]))
    b'ab  ef'
    """
    parts, position = [], 0
    for start, end in spans.tolist():
        parts.append(data[position:start])
        position = end
    return b"".join([*parts, data[position:]])


def spans_to_cut(index: EvaluationIndex, data: bytes, limits: Limits, excepted: Array) -> NDArray[np.int64]:
    """Return the spans of a text that still contaminate it."""
    text = np.frombuffer(data or b" ", np.uint8)
    found, _ = index.hits(text, np.zeros(1, np.int64), np.array([len(data)], np.int64))
    hits = np.empty(len(found.row), HIT)
    for name in HIT.names or ():
        hits[name] = getattr(found, name)
    bad = [o for o in overlaps_of(Postings(index), hits, excepted) if o.is_contamination(limits)]
    windows = np.unique(np.concatenate([np.empty(0, np.int64), *(o.windows for o in bad)]))
    return merged(hits["start"][windows].astype(np.int64), hits["end"][windows].astype(np.int64))
