"""Ranges of the input that are committed, file by file, in about a byte per finished file. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import field

from tamis._dataclasses import dataclass


class Intervals:
    """Disjoint, sorted ranges of integers; neighbours are merged."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        """Add the range [start, end).

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
        gaps, position = [], start
        for s, e in zip(self._starts, self._ends, strict=True):
            if e <= position:
                continue
            if s >= end:
                break
            if s > position:
                gaps.append((position, s))
            position = max(position, e)
        if position < end:
            gaps.append((position, end))
        return gaps

    def covers(self, start: int, end: int) -> bool:
        return not self.missing(start, end)


@dataclass
class FileCoverage:
    """Committed ranges of one file, in its own coordinate; `size` once its end is known."""

    ranges: Intervals = field(default_factory=Intervals)
    size: int = -1

    @property
    def complete(self) -> bool:
        return self.size >= 0 and self.ranges.covers(0, self.size)


class Coverage:
    """Committed ranges of all input files.

    `plain_size` returns the size of a file whose coordinate is its bytes, and -1 for others.
    """

    def __init__(self, plain_size: Callable[[int], int] = lambda _: -1) -> None:
        self._plain_size = plain_size
        self._partial: dict[int, FileCoverage] = {}
        self._complete = bytearray()

    def add(self, file: int, start: int, end: int, at_end: bool) -> None:
        if self._is_complete(file):
            return
        done = self._partial.setdefault(file, FileCoverage())
        done.ranges.add(start, end)
        if at_end:
            done.size = end
        elif done.size < 0:
            done.size = self._plain_size(file)
        if done.complete:
            del self._partial[file]
            if file >= len(self._complete):
                self._complete.extend(bytes(file + 1 - len(self._complete)))
            self._complete[file] = 1

    def get(self, file: int) -> FileCoverage | None:
        """Return what is done of the file, or None if nothing is.

        A finished file is done from 0 to an end that does not matter any more.
        """
        if self._is_complete(file):
            return FileCoverage(size=0)
        return self._partial.get(file)

    def first_gap(self, n_files: int, is_empty: Callable[[int], bool]) -> tuple[int, int] | None:
        """Return (file, position) of the first input that no commit covers; None when everything is covered."""
        for file in range(n_files):
            if self._is_complete(file) or is_empty(file):
                continue
            done = self._partial.get(file)
            if done is None:
                return file, 0
            missing = done.ranges.missing(0, done.size if done.size >= 0 else 1 << 62)
            return file, missing[0][0]
        return None

    def _is_complete(self, file: int) -> bool:
        return file < len(self._complete) and bool(self._complete[file])
