"""The partition map: all input laid end to end, cut into at most 1,000 cells; how much of each waits, runs, is done.

Pure.

Bytes are those of the files as they are on disk. Ranges of a compressed or Parquet file are in decoded bytes or rows;
they are placed by their share of the file, whose end is known once a worker has seen it and estimated before. Commits
are added as they come, so that a look costs the number of cells and of units under way, not of partitions.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from itertools import accumulate
from typing import NamedTuple

from tamis._dataclasses import dataclass
from tamis.engine.schema import CoveredRange
from tamis.engine.supervisor.coverage import Coverage, Intervals
from tamis.engine.units import TO_END, Mode, Piece, PieceKind, Unit

MAX_CELLS = 1000
_EXPANSION = 4  # decoded bytes of a compressed file, by those on disk
Range = tuple[float, float]


class CellRow(NamedTuple):
    """A row of the table `cells`: a stretch of the input, and how many of its bytes are in which state."""

    cell: int
    first_byte: int
    last_byte: int
    waiting: int
    running: int
    committed: int
    quarantined: int
    split: int


def expected_partitions(sizes: Sequence[int], kinds: Sequence[PieceKind], partition_bytes: int) -> int:
    """Return the number of cells: one for each partition that is expected, at most MAX_CELLS.

    >>> expected_partitions([100, 30], [PieceKind.BYTES, PieceKind.STREAM], 40)
    6
    """
    n = 0
    for size, kind in zip(sizes, kinds, strict=True):
        decoded = size if kind is PieceKind.BYTES else size * _EXPANSION
        n += max(1, -(-decoded // max(partition_bytes, 1)))
        if n >= MAX_CELLS:
            return MAX_CELLS
    return max(n, 1)


@dataclass
class _Open:
    """A file that is not plain and of which a part is committed."""

    ranges: Intervals = field(default_factory=Intervals)
    size: int = -1
    bad: list[tuple[int, int, float]] = field(default_factory=list)  # ranges of which a share went to quarantine


class Cells:
    """`sizes` of the files on disk; `is_plain`: whether the coordinate of a file is its bytes.

    `done`: committed by earlier runs.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        is_plain: Callable[[int], bool],
        done: Coverage | None = None,
        n_cells: int = MAX_CELLS,
    ) -> None:
        self._is_plain = is_plain
        self._starts = array("q", accumulate((max(s, 0) for s in sizes), initial=0))
        total = self._starts[-1]
        self._width = max(1, -(-total // n_cells))
        self.n = -(-total // self._width)
        self._committed, self._bad, self._splits = [0.0] * self.n, [0.0] * self.n, [0] * self.n
        self._open: dict[int, _Open] = {}
        self._extents: dict[int, float] = {}  # estimated ends of files under way, in their own coordinate
        self._written: list[CellRow | None] = [None] * self.n
        self._drawn: list[tuple[float, float, float, int] | None] = [None] * self.n
        self._known: dict[int, list[Range]] = {}  # of units under way
        if done is not None:
            self._resume(done)

    def _resume(self, done: Coverage) -> None:
        for file in range(len(self._starts) - 1):
            part = done.get(file)
            if part is None:
                continue
            if part.size == 0 and not part.ranges.pairs():  # complete
                self._add(self._starts[file], self._starts[file + 1], 0.0)
                continue
            for start, end in part.ranges.pairs():
                self.commit([CoveredRange(file, start, end, end == part.size)])
            if file in self._open:
                self._open[file].size = part.size

    # -- what happens -------------------------------------------------------------------------------------------------
    def commit(self, covered: Iterable[CoveredRange], bad_share: float = 0.0) -> None:
        """Mark ranges as committed. `bad_share`: the share of them (by documents) that went to quarantine."""
        for file, start, end, at_end in covered:
            if not 0 <= file < len(self._starts) - 1:
                continue
            if self._is_plain(file):
                self._add(self._starts[file] + start, self._starts[file] + end, bad_share)
                continue
            part = self._open.setdefault(file, _Open())
            part.ranges.add(start, end)
            if bad_share:
                part.bad.append((start, end, bad_share))
            if at_end:
                part.size = end
            if part.size >= 0 and part.ranges.covers(0, part.size):
                n_bad = sum((e - s) * share for s, e, share in part.bad)
                self._add(self._starts[file], self._starts[file + 1], n_bad / max(1, part.size))
                del self._open[file]
                self._extents.pop(file, None)

    def split(self, unit: Unit) -> None:
        """Count the split of a unit that was cut in two after a failure."""
        first = unit.pieces[0] if unit.pieces else None
        if first is None or not 0 <= first.file < len(self._starts) - 1 or not self.n:
            return
        at = int(self._range(first)[0])
        self._splits[min(at // self._width, self.n - 1)] += 1

    def estimate(self, file: int, decoded: int, on_disk: int) -> None:
        """Estimate a file's extent: `on_disk` of its bytes on disk gave `decoded` bytes in its own coordinate."""
        if on_disk > 0 and decoded > 0:
            size = self._starts[file + 1] - self._starts[file]
            self._extents[file] = max(decoded, decoded * size / on_disk)

    # -- looking ------------------------------------------------------------------------------------------------------
    def changed(self, under_way: Iterable[Unit]) -> Iterator[CellRow]:
        """Yield cells that changed since the last call, given the units that workers have now."""
        committed, bad, running = self._committed, self._bad, [0.0] * self.n
        if self._open:
            committed, bad = list(committed), list(bad)
            for file, part in self._open.items():
                for start, end in part.ranges.pairs():
                    self._spread(committed, *self._place(file, start, end))
                for start, end, share in part.bad:
                    at, to = self._place(file, start, end)
                    self._spread(bad, at, to, share)
                    self._spread(committed, at, to, -share)
        ranges: dict[int, list[Range]] = {}
        for unit in under_way:
            if unit.mode in (Mode.RUN, Mode.QUARANTINE):
                ranges[unit.id] = self._known.get(unit.id) or self._ranges(unit)
                for at, to in ranges[unit.id]:
                    self._spread(running, at, to)
        self._known = ranges
        for i, state in enumerate(zip(committed, bad, running, self._splits, strict=True)):
            if state != self._drawn[i]:  # most are as they were: everything else here is done for the few that are not
                self._drawn[i] = state
                row = self._row(i, *state)
                if row != self._written[i]:
                    self._written[i] = row
                    yield row

    def _row(self, i: int, committed: float, bad: float, running: float, n_splits: int) -> CellRow:
        first, last = i * self._width, min((i + 1) * self._width, self._starts[-1])
        done = min(_whole(committed), last - first)
        gone = min(_whole(bad), last - first - done)
        busy = min(_whole(running), last - first - done - gone)
        return CellRow(i, first, last, last - first - done - gone - busy, busy, done, gone, n_splits)

    def _ranges(self, unit: Unit) -> list[Range]:
        """Return the ranges that a unit covers, merging those of neighbouring files.

        A unit may hold a thousand files.
        """
        ranges: list[Range] = []
        for piece in unit.pieces:
            if not 0 <= piece.file < len(self._starts) - 1 or piece.kind is PieceKind.START:
                continue
            at, to = self._range(piece)
            if ranges and ranges[-1][1] == at:
                ranges[-1] = (ranges[-1][0], to)
            else:
                ranges.append((at, to))
        return ranges

    def _range(self, piece: Piece) -> Range:
        start, end = self._starts[piece.file], self._starts[piece.file + 1]
        if self._is_plain(piece.file):
            return start + min(piece.start, end - start), min(start + piece.end, end)
        if piece.end == TO_END and piece.start == 0:
            return start, end
        return self._place(piece.file, piece.start, piece.end)

    def _place(self, file: int, start: int, end: int) -> Range:
        """Convert a range of a file that is not plain to bytes on disk."""
        at, size = self._starts[file], self._starts[file + 1] - self._starts[file]
        part = self._open.get(file)
        extent = part.size if part is not None and part.size > 0 else self._extents.get(file, 0.0)
        extent = max(extent, start if end == TO_END else end, 1)
        return at + size * start / extent, at + size * min(end, extent) / extent

    def _add(self, position: int, to: int, bad_share: float) -> None:
        self._spread(self._committed, position, to, 1 - bad_share)
        if bad_share:
            self._spread(self._bad, position, to, bad_share)

    def _spread(self, cells: list[float], start: float, to: float, weight: float = 1.0) -> None:
        width, to = self._width, min(to, self._starts[-1])  # a file may have grown since it was listed
        while start < to:
            i = int(start // width)
            end = min(to, (i + 1) * width)
            cells[i] += weight * (end - start)
            start = end


def _whole(n_bytes: float) -> int:
    return max(0, round(n_bytes))
