"""Sets of half-open ranges: what of a file is done, and what is left."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class Intervals:
    """Disjoint, sorted ranges of integers; neighbours are merged."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        """
        >>> done = Intervals(); done.add(0, 10); done.add(20, 30); done.add(10, 15); done.pairs()
        [(0, 15), (20, 30)]
        """
        if start >= end:
            return
        i = bisect_left(self._ends, start)
        j = bisect_right(self._starts, end)
        if i < j:
            start, end = min(start, self._starts[i]), max(end, self._ends[j - 1])
        self._starts[i:j], self._ends[i:j] = [start], [end]

    def pairs(self) -> list[tuple[int, int]]:
        return list(zip(self._starts, self._ends, strict=True))

    def missing(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of [start, end) that are not in the set.

        >>> done = Intervals(); done.add(10, 20); done.missing(0, 30)
        [(0, 10), (20, 30)]
        """
        left, at = [], start
        for s, e in zip(self._starts, self._ends, strict=True):
            if e <= at:
                continue
            if s >= end:
                break
            if s > at:
                left.append((at, s))
            at = max(at, e)
        if at < end:
            left.append((at, end))
        return left

    def covers(self, start: int, end: int) -> bool:
        return not self.missing(start, end)
