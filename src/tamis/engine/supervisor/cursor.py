"""Decide which part of the input comes next. Pure: it knows sizes and what is done, and reads nothing.

Files are handed out in order. Large plain files are cut into ranges, small files of one kind are grouped, compressed
files that are too large for one partition become a feed, files of rows are handed out whole until a worker has reported
their row groups. What an earlier run committed is never handed out again (the complement of `done`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import field

from tamis._dataclasses import dataclass
from tamis.engine.supervisor.coverage import Coverage, FileCoverage, Intervals
from tamis.engine.units import TO_END, Mode, Piece, PieceKind
from tamis.formats.input_files.listing import FileList

MAX_FILES_PER_UNIT = 1024
_DIVIDED_ABOVE = {PieceKind.BYTES: 1, PieceKind.STREAM: 2}  # in partitions: larger files of a kind are divided


@dataclass
class WorkItem:
    """The next piece of work: what to do with which pieces."""

    pieces: list[Piece]
    mode: Mode = Mode.RUN
    describe: bool = False  # only report the row groups: part of the file is done already
    whole: bool = False  # files that are partitions of their own


@dataclass
class _FileGroup:
    """Whole files of one kind that are handed out together."""

    max_files: int
    max_bytes: float  # decoded
    pieces: list[Piece] = field(default_factory=list)
    n_bytes: int = 0

    def has_room(self, kind: PieceKind, n_bytes: int) -> bool:
        """Return True if a file belongs to this group, which is not empty."""
        is_full = len(self.pieces) >= self.max_files or self.n_bytes + n_bytes > self.max_bytes
        return not is_full and self.pieces[0].kind is kind

    def add(self, piece: Piece, n_bytes: int) -> None:
        self.pieces.append(piece)
        self.n_bytes += n_bytes


def _is_divided(kind: PieceKind, decoded_bytes: int, max_bytes: float, is_begun: bool) -> bool:
    """Return True if a file is too large to be handed out whole, or part of it (`is_begun`) is done."""
    if is_begun:
        return kind in (PieceKind.BYTES, PieceKind.STREAM, PieceKind.ROWS)
    return kind in _DIVIDED_ABOVE and decoded_bytes > max_bytes * _DIVIDED_ABOVE[kind]


class Cursor:
    def __init__(
        self,
        files: FileList,
        kinds: list[PieceKind],
        done: Coverage | None = None,
        files_per_partition: int | None = None,
        ratio: float = 4.0,
        takes_empty: bool = False,
        files_together: int = MAX_FILES_PER_UNIT,
        files_apart: int = 0,
    ) -> None:
        self.files, self.kinds = files, kinds
        self.takes_empty = takes_empty  # empty files are handed out, too: a worker must report them
        self.done = done if done is not None else Coverage()
        self.files_per_partition, self.files_together = files_per_partition, files_together
        self.files_apart = files_apart  # so many form a unit, each a partition of its own; 0: grouped by size
        self.ratio = ratio  # decoded bytes per compressed byte, learned as files are read
        self._next_file = 0
        self._remaining: deque[Piece] = deque()  # ranges of the file being cut
        self._ready: deque[WorkItem] = deque()
        self._input_bytes = self._ahead_bytes = sum(max(s, 0) for s in files.sizes)

    def share_of(self, pieces: Iterable[Piece]) -> float:
        """Return the share of the input that pieces are, rather too large than too small where that is not known."""
        total, n_bytes = self._input_bytes, 0
        for piece in pieces:
            is_known = piece.kind in (PieceKind.BYTES, PieceKind.BLOCK) and piece.end != TO_END
            is_input = 0 <= piece.file < len(self.files)
            n_bytes += piece.end - piece.start if is_known else self.files.sizes[piece.file] if is_input else total
        return min(1.0, n_bytes / total) if total else 1.0

    def cut_at_row_groups(
        self,
        file: int,
        groups: Iterable[tuple[int, int, int]],
        n_rows: int,
        max_bytes: int,
        first_row: int = 0,
        measured: bool = False,
    ) -> None:
        """Split a file of rows (rows from `first_row` to `n_rows`) that turned out too large for one partition.

        Its row groups are (first row, rows, decoded bytes). `measured`: a worker began to read these rows and
        rejected them for their actual size, so they must not be handed out unchanged, whatever the groups declare.
        """
        done = Intervals()
        for s, e in [*(self.done.get(file) or FileCoverage()).ranges.pairs(), (0, first_row)]:
            done.add(s, e)
        path, start, end, size = self.files.paths[file], 0, 0, 0
        n_ready = len(self._ready)
        for first, rows, n_bytes in groups:
            if n_bytes > max_bytes * 3 // 2 and rows > 1:
                self._put_rows(file, path, start, end, done)
                for s, e in done.missing(first, first + rows):
                    self._ready.append(WorkItem([Piece(file, PieceKind.ROWS, path, s, e)], Mode.FEED))
                start, end, size = first + rows, first + rows, 0
                continue
            if size and size + n_bytes > max_bytes:
                self._put_rows(file, path, start, end, done)
                start, size = end, 0
            end, size = first + rows, size + n_bytes
        self._put_rows(file, path, start, n_rows, done)
        if measured and len(self._ready) == n_ready + 1:
            self._ready[-1].mode = Mode.FEED

    def _put_rows(self, file: int, path: str, start: int, end: int, done: Intervals) -> None:
        self._ready.extend(WorkItem([Piece(file, PieceKind.ROWS, path, s, e)]) for s, e in done.missing(start, end))

    def feed(self, file: int) -> None:
        """Queue a compressed file that turned out too large for one partition to be fed in blocks."""
        self._ready.append(self._feed_of(file))

    def feed_rows(self, piece: Piece) -> None:
        """Feed rows of a file that take too much memory to be read at once."""
        self._ready.append(WorkItem([piece], Mode.FEED))

    def _feed_of(self, file: int) -> WorkItem:
        done = self.done.get(file) or FileCoverage()
        path = self.files.paths[file]
        # A known end is not read again: its faults have been reported.
        end = done.size if done.size >= 0 else TO_END
        pieces = [Piece(file, PieceKind.STREAM, path, s, e) for s, e in done.ranges.missing(0, end)]
        return WorkItem(pieces, Mode.FEED)

    def next(self, max_bytes: int, may_feed: bool = True, whole_bytes: int = 0) -> WorkItem | None:
        """Return work of at most `max_bytes` decoded, as far as is known; None if nothing is left, or only feeds.

        `whole_bytes`: the same for files that are partitions of their own.
        """
        for i, work in enumerate(self._ready):
            if may_feed or work.mode is not Mode.FEED:
                del self._ready[i]
                return work
        if self._remaining:
            return self._cut(max_bytes)
        return self._from_files(max_bytes, may_feed, max(max_bytes, whole_bytes))

    def _cut(self, max_bytes: int) -> WorkItem:
        """Cut a range off the file being cut, so that the rest is cut evenly."""
        piece = self._remaining.popleft()
        size = piece.end - piece.start
        n_parts = -(-size // max_bytes)
        if n_parts > 1:
            cut = piece.start + -(-size // n_parts)
            self._remaining.appendleft(Piece(piece.file, piece.kind, piece.path, cut, piece.end))
            piece = Piece(piece.file, piece.kind, piece.path, piece.start, cut)
        return WorkItem([piece])

    def _from_files(self, max_bytes: int, may_feed: bool, whole_bytes: int) -> WorkItem | None:
        """Return the next small files as one group, or the first work of a file that is not handed out whole."""
        group = self._new_group(max_bytes, whole_bytes)
        while self._next_file < len(self.files):
            i = self._next_file
            kind, done = self.kinds[i], self.done.get(i)
            if done is not None and done.complete:
                self._advance()
                # What is on both sides of it is not neighbouring: in one partition it would be in another order.
                if group.pieces:
                    break
                continue
            if self.files.sizes[i] == 0 and not self.takes_empty:
                self._advance()
                continue
            decoded_bytes = self._decoded_bytes(i)
            if group.pieces and (done is not None or not group.has_room(kind, decoded_bytes)):
                break
            if _is_divided(kind, decoded_bytes, group.max_bytes, done is not None):
                if kind is PieceKind.STREAM and not may_feed:
                    return None
                self._advance()
                if (work := self._divided(i, max_bytes)) is not None:
                    return work
                continue
            self._advance()
            group.add(self._whole_file(i), decoded_bytes)
        return WorkItem(group.pieces, whole=self.files_apart > 0) if group.pieces else None

    def _new_group(self, max_bytes: int, whole_bytes: int) -> _FileGroup:
        if self.files_per_partition is not None:  # so many files, whatever their size, as far as memory allows
            return _FileGroup(self.files_per_partition or self.files_together, math.inf)
        if self.files_apart:
            return _FileGroup(self.files_apart, whole_bytes)
        return _FileGroup(self.files_together, max_bytes)

    def _decoded_bytes(self, file: int) -> int:
        size = max(self.files.sizes[file], 0)
        return size if self.kinds[file] is PieceKind.BYTES else int(size * self.ratio)

    def _whole_file(self, file: int) -> Piece:
        kind = self.kinds[file]
        end = self.files.sizes[file] if kind is PieceKind.BYTES else TO_END
        return Piece(file, kind, self.files.paths[file], 0, end)

    def _divided(self, file: int, max_bytes: int) -> WorkItem | None:
        """Return the first work of a file that is not handed out whole; None if nothing of it is left to do."""
        kind, path, done = self.kinds[file], self.files.paths[file], self.done.get(file)
        if kind is PieceKind.STREAM:
            return self._feed_of(file)
        if kind is PieceKind.ROWS:
            # Only a worker can count the rows of the file: it answers with its row groups (see cut_at_row_groups).
            return WorkItem([self._whole_file(file)], describe=True)
        size = self.files.sizes[file]
        remaining = done.ranges.missing(0, size) if done is not None else [(0, size)]
        self._remaining.extend(Piece(file, kind, path, s, e) for s, e in remaining)
        return self._cut(max_bytes) if self._remaining else None

    def _advance(self) -> None:
        self._ahead_bytes -= max(self.files.sizes[self._next_file], 0)
        self._next_file += 1

    @property
    def exhausted(self) -> bool:
        return not self._ready and not self._remaining and self._next_file >= len(self.files)

    @property
    def has_other_work(self) -> bool:
        """True if there is work, as far as is known, that is no feed."""
        return (
            bool(self._remaining)
            or self._next_file < len(self.files)
            or any(w.mode is not Mode.FEED for w in self._ready)
        )

    @property
    def remaining_bytes(self) -> int:
        """Input bytes not handed out yet (compressed size for compressed files)."""
        return self._ahead_bytes + sum(p.end - p.start for p in self._remaining)
