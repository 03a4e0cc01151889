"""What of the input is committed, file by file, in about a byte per finished file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tamis.engine.supervisor.intervals import Intervals


@dataclass
class Done:
    """What of one file is committed, in its own coordinate; `size` once its end is known."""

    ranges: Intervals = field(default_factory=Intervals)
    size: int = -1

    @property
    def complete(self) -> bool:
        return self.size >= 0 and self.ranges.covers(0, self.size)


class Coverage:
    """`plain_size` tells the size of a file whose coordinate is its bytes, and -1 for others."""

    def __init__(self, plain_size: Callable[[int], int] = lambda _: -1) -> None:
        self._plain_size = plain_size
        self._partial: dict[int, Done] = {}
        self._complete = bytearray()

    def add(self, file: int, start: int, end: int, at_end: bool) -> None:
        if self._is_complete(file):
            return
        done = self._partial.setdefault(file, Done())
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

    def get(self, file: int) -> Done | None:
        """Return what is done of the file, or None if nothing is.

        A finished file is done from 0 to an end that does not matter any more.
        """
        if self._is_complete(file):
            return Done(size=0)
        return self._partial.get(file)

    def first_gap(self, n_files: int, is_empty: Callable[[int], bool]) -> tuple[int, int] | None:
        """(file, place) of the first input that no commit covers; None when everything is covered."""
        for file in range(n_files):
            if self._is_complete(file) or is_empty(file):
                continue
            done = self._partial.get(file)
            if done is None:
                return file, 0
            left = done.ranges.missing(0, done.size if done.size >= 0 else 1 << 62)
            return file, left[0][0]
        return None

    def _is_complete(self, file: int) -> bool:
        return file < len(self._complete) and bool(self._complete[file])
