"""Histograms that can be added: document lengths and scores of a partition, of a run, of a run that was resumed.

Every histogram has the same bins, fixed once and for all, so that merging is adding counts and the result does not
depend on how the input was cut, in which order partitions came, or how often a worker died. (Bins that follow the data,
or a digest of quantiles, would: they depend on the order of merging.) Nothing is known of a score before it is
measured, so bins fit counts and shares alike: four bins per power of two, finer where most shares, probabilities and
means are, and the same again below zero. At most 693 bins; a partition fills a few dozen of them, and only those are
kept.

bin 0          0 up to 2**-24                               bins 201-344  16 up to 2**40, four per power of two
bins 1-80      2**-24 up to 1/16, four per power of two     bin 345       2**40 and more
bins 81-140    1/16 up to 1, each 1/64                      bin 346       no number: null, NaN, a text
bins 141-200   1 up to 16, each 1/4

A bin holds its lower end, not its upper one; bin -1 - i mirrors bin i, ends included. Only plain Python here: the
supervisor adds these up, and has no numpy. engine/worker/binning.py counts arrays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from operator import add
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

if TYPE_CHECKING:
    from tamis.engine.ledger import Ledger
    from tamis.engine.schema import RecordedRule

# Powers of two: where each kind of bins begins, and the end.
SMALLEST, SHARES, MEANS, LARGE, LARGEST = (-24, -4, 0, 4, 40)
FIRST_SHARE = 1 + (SHARES - SMALLEST) * 4
FIRST_MEAN = FIRST_SHARE + 60
FIRST_LARGE = FIRST_MEAN + 60
OVERFLOW = FIRST_LARGE + (LARGEST - LARGE) * 4
NO_NUMBER = OVERFLOW + 1
N_BINS = 2 * NO_NUMBER + 1
_ZERO = NO_NUMBER  # the position of bin 0 among all of them
_LONG_GAP = 3  # as many empty bins take more room than the number of the next one


class Histogram:
    """Counts by bin.

    Books travel as text and are mostly handed on as they are, so a text is read only when something is added to it.
    """

    __slots__ = ("_counts", "_first", "_last", "_text")

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self._counts: list[int] | None = None  # of all bins
        self._first, self._last = N_BINS, 0  # those before the first, and from the last on, are empty
        self._text = ""
        for index, n in (counts or {}).items():
            self.add(index, [n])

    @property
    def counts(self) -> dict[int, int]:
        """Numbers of the bins that hold something."""
        return {first + i: n for first, run in self._runs() for i, n in enumerate(run) if n}

    def add(self, first: int, run: Sequence[int]) -> None:
        """Add the counts of neighbouring bins, from bin `first` on."""
        counts = self._counts
        if counts is None:
            counts = self._counts = [0] * N_BINS
            self.merge(Histogram.from_text(self._text))
        at = first + _ZERO
        end = at + len(run)
        if at < 0 or end > N_BINS or min(run) < 0:
            raise ValueError(f"no histogram: {first}:{str(run)[:80]}")
        if end - at == 1:  # most scores of most partitions are all alike, and slices take their time
            counts[at] += run[0]
        else:
            counts[at:end] = map(add, counts[at:end], run)
        if at < self._first:
            self._first = at
        if end > self._last:
            self._last = end

    def merge(self, other: Histogram) -> None:
        if self._counts is None and not self._text and other._counts is None:
            self._text = other._text
            return
        for first, run in other._runs():
            self.add(first, run)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Histogram) and self.counts == other.counts

    def __repr__(self) -> str:
        return f"Histogram({self.to_text()!r})"

    def bins(self) -> list[Bin]:
        """Return [low, high, count] of each bin that holds something, in order.

        None as the lower (upper) end means without limit; None for both, at the end, counts what is no number.
        """
        return [(*edges(i), n) for i, n in self.counts.items()]

    def to_text(self) -> str:
        """Encode as text for commits: "141:5,0,2;160:1" is 5 in bin 141, 2 in bin 143, 1 in bin 160."""
        if self._counts is None:
            return self._text
        runs: list[str] = []
        before = -N_BINS
        for at, n in enumerate(self._counts[self._first : self._last], self._first):
            if n:
                if at - before > _LONG_GAP:
                    runs.append(f"{at - _ZERO}:{n}")
                else:
                    runs[-1] += ",0" * (at - before - 1) + f",{n}"
                before = at
        return ";".join(runs)

    @classmethod
    def from_text(cls, text: str) -> Histogram:
        """Parse the output of `to_text`; anything else raises ValueError, on first access."""
        histogram = cls()
        histogram._text = text
        return histogram

    def _runs(self) -> Iterator[tuple[int, list[int]]]:
        if self._counts is not None:
            if self._last:
                yield self._first - _ZERO, self._counts[self._first : self._last]
            return
        for part in self._text.split(";") if self._text else ():
            first, _, counts = part.partition(":")
            yield int(first), list(map(int, counts.split(",")))


def edges(index: int) -> tuple[float | None, float | None]:
    """Return the bounds of a bin; None where there is none."""
    if index < 0:
        low, high = edges(-1 - index)
        return (None if high is None else -high), (None if low is None else -low + 0.0)
    if index == NO_NUMBER:
        return None, None
    if index == OVERFLOW:
        return 2.0**LARGEST, None
    if index == 0:
        return 0.0, 2.0**SMALLEST
    if FIRST_SHARE <= index < FIRST_LARGE:
        first, width = (FIRST_SHARE, 1 / 64) if index < FIRST_MEAN else (FIRST_MEAN, 1 / 4)
        return (index - first + 4) * width, (index - first + 5) * width
    first, begin = (1, SMALLEST) if index < FIRST_SHARE else (FIRST_LARGE, LARGE)
    power, quarter = divmod(index - first, 4)
    unit = 2.0 ** (begin + power) / 4
    return (4 + quarter) * unit, (5 + quarter) * unit


def merge_all(mine: dict[str, Histogram], others: dict[str, Histogram]) -> None:
    for name, histogram in others.items():
        mine.setdefault(name, Histogram()).merge(histogram)


def to_texts(histograms: dict[str, Histogram]) -> dict[str, str]:
    return {name: h.to_text() for name, h in histograms.items()}


def from_texts(texts: Any) -> dict[str, Histogram]:
    if not isinstance(texts, dict):
        raise ValueError(f"no histograms: {str(texts)[:80]!r}")
    return {str(name): Histogram.from_text(str(text)) for name, text in texts.items()}


Bin = tuple[float | None, float | None, int]
"""Low end, high end (None: without limit; both None: no number) and count."""


class HistogramTable(TypedDict):
    """A histogram of a run in manifest.json and the run database."""

    stage: str  # "": of all documents
    name: str
    kind: str  # bytes, score
    bins: list[Bin]
    limits: NotRequired[list[float]]  # what rules compare the score with


def tables(ledger: Ledger, rules: Sequence[RecordedRule] = ()) -> list[HistogramTable]:
    """Return all histograms of a run, as manifest.json and the run database show them.

    Scores that are not numbers are left out. `rules`: those of the run, as its plan stores them; a score has
    the `limits` of those that compare it.
    """
    rows = [_table("", "bytes", f"length_{side}", h) for side, h in sorted(ledger.lengths.items())]
    for book in ledger.stages:
        rows += [_table(book.name, name, "score", h) for name, h in book.scores.items() if set(h.counts) - {NO_NUMBER}]
    for table in rows:
        of_score = [
            r for r in rules if table["kind"] == "score" and (r.stage, r.score) == (table["stage"], table["name"])
        ]
        compared = [limit for r in of_score for limit in r.compared]
        if limits := [x for x in compared if isinstance(x, (int, float)) and math.isfinite(x)]:
            table["limits"] = limits
    return [t for t in rows if t["bins"]]


def _table(stage: str, name: str, kind: str, histogram: Histogram) -> HistogramTable:
    return {"stage": stage, "name": name, "kind": kind, "bins": histogram.bins()}
