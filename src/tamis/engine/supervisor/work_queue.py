"""The work queue: units that wait, the partitions they belong to, their scratch files, and what is being committed.

Pure.

A partition is everything that comes from one unit of the first segment; it is committed as one, when its last unit is
done.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence

from tamis.engine.ledger import Ledger
from tamis.engine.messages import Done, RowsTooLarge, StreamTooLarge
from tamis.engine.schema import CoveredRange, FileKind
from tamis.engine.supervisor.actions import Action, CommitPartition, DiscardFiles, ReplaceFiles
from tamis.engine.supervisor.cursor import Cursor
from tamis.engine.supervisor.state import Partition, counts_of
from tamis.engine.units import (
    MIN_ROWS_BYTES,
    Mode,
    Piece,
    PieceKind,
    Rewrite,
    Unit,
    halves,
    remaining_pieces,
)

_MAX_RATIO = 1000.0  # decoded bytes per compressed byte, whatever one file says


class ScratchFiles:
    """Scratch files between processes, counted in bytes and in users (halves of a split unit share one file)."""

    def __init__(self) -> None:
        self._bytes: dict[str, int] = {}
        self._users: dict[str, int] = {}

    def add(self, path: str, n_bytes: int) -> None:
        """Add a file that one unit needs."""
        self._bytes[path], self._users[path] = n_bytes, 1

    def share(self, path: str) -> None:
        """Count one more unit that needs the file."""
        if path in self._users:
            self._users[path] += 1

    def free(self, paths: Iterable[str]) -> list[Action]:
        """Count one unit less for each of these files; discard those that no unit needs any more."""
        unused = []
        for path in paths:
            users = self._users.get(path, 1) - 1
            if users > 0:
                self._users[path] = users
                continue
            self._users.pop(path, None)
            self._bytes.pop(path, None)
            unused.append(path)
        return [DiscardFiles(unused)] if unused else []

    def bytes_of(self, path: str) -> int:
        return self._bytes.get(path, 0)

    @property
    def total_bytes(self) -> int:
        return sum(self._bytes.values())


class WorkQueue:
    """All work of one sampling step: input not handed out yet, units waiting by segment, feeds, and open partitions."""

    def __init__(self, cursor: Cursor, n_segments: int, sampling_step: int = 0) -> None:
        self.cursor, self.sampling_step = cursor, sampling_step
        self.segments: list[deque[Unit]] = [deque() for _ in range(n_segments)]
        self.feeds: deque[Unit] = deque()
        self.partitions: dict[int, Partition] = {}
        self.scratch = ScratchFiles()
        self.ledger = Ledger()  # of the partitions that were committed, or are being
        self.under_way: Counter[str] = Counter()  # counted by units whose partition is not through all segments yet
        self.n_committing = 0
        self.unsynced_bytes = 0
        self._n_partitions = 0
        self._next_unit = 1

    # -- state --------------------------------------------------------------------------------------------------------
    @property
    def is_empty(self) -> bool:
        """True if no work is waiting, neither as a unit nor as input that was not handed out."""
        return self.cursor.exhausted and not self.has_units and not self.feeds

    @property
    def has_units(self) -> bool:
        return any(self.segments)

    def remaining_bytes(self, busy: Sequence[Unit]) -> int:
        """Return the input bytes that are not done yet (compressed bytes where the input is compressed).

        `busy`: the units that workers have.
        """
        n_bytes = self.cursor.remaining_bytes
        for unit in [*(unit for unit in busy if unit.mode is Mode.FEED), *self.feeds]:
            if unit.pieces:
                n_bytes += max(0, self.cursor.files.sizes[unit.pieces[0].file] - unit.compressed_bytes)
        n = len(self.segments)  # what waits for the last of two segments is half done
        each = (self.cursor.files.total_bytes - self.cursor.remaining_bytes) // max(1, self._n_partitions)
        for unit in [*busy, *self.segments[0]]:
            if unit.mode is Mode.RUN:
                sizes = [p.end - p.start for p in unit.pieces if p.kind is PieceKind.BYTES]
                n_bytes += (sum(sizes) or each) * (n - unit.segment) // n  # rows and blocks do not say how many bytes
        n_bytes += sum(len(queue) * each * (n - i) // n for i, queue in enumerate(self.segments) if i)
        return min(n_bytes, self.cursor.files.total_bytes)

    def books(self) -> list[Ledger]:
        """Return the books of everything that is counted: of committed partitions, and of units of open ones."""
        return [self.ledger, *(ledger for partition in self.partitions.values() for _, ledger in partition.parts)]

    # -- units --------------------------------------------------------------------------------------------------------
    def new_unit(self, pieces: list[Piece], segment: int = 0, partition: int = -1) -> Unit:
        """Return a new unit; without a `partition` it begins one."""
        unit = Unit(self._next_unit, pieces, segment=segment, partition=partition, sampling_step=self.sampling_step)
        self._next_unit += 1
        if partition < 0:
            self.partitions[unit.partition] = Partition(pieces[0], self.sampling_step)
            self._n_partitions += 1
        return unit

    def add_rewrite(self, rewrite: Rewrite) -> None:
        """Queue a unit that joins schemas or rewrites output files; it belongs to no partition."""
        unit = self.new_unit([Piece(0, PieceKind.START, "", 0, 1)])
        self.partitions.pop(unit.partition)
        unit.mode, unit.rewrite = Mode.REWRITE, rewrite
        self.segments[0].append(unit)

    def add_block(self, feed: Unit, piece: Piece, n_bytes: int, compressed_bytes: int) -> None:
        """Queue a block that a feeder has written, having read `compressed_bytes` of its file so far."""
        feed.compressed_bytes = compressed_bytes
        feed.n_failures = 0
        feed.pieces = remaining_pieces(feed.pieces, piece)
        self.scratch.add(piece.path, n_bytes)
        self.segments[0].append(self.new_unit([piece]))

    def requeue(self, unit: Unit) -> None:
        """Queue a unit to be tried again, before others."""
        if unit.mode is not Mode.FEED:
            self.segments[unit.segment].appendleft(unit)
        elif not unit.pieces:  # every block was handed out already
            self.partitions.pop(unit.partition, None)
        elif unit.is_patient:  # it waits for an empty queue and does not hold up others
            self.feeds.append(unit)
        else:
            self.feeds.appendleft(unit)

    def split(self, unit: Unit, n_failures: int) -> None:
        """Queue the two halves of a unit in its place; `n_failures` is the failures of each so far."""
        for path in [unit.handover] if unit.segment else {p.path for p in unit.pieces}:
            self.scratch.share(path)
        for half in halves(unit):
            child = self.new_unit(half.pieces, segment=unit.segment, partition=unit.partition)
            child.sampling_step, child.n_failures, child.last_error = unit.sampling_step, n_failures, unit.last_error
            child.handover, child.handover_rows = unit.handover, half.rows
            child.handover_check = unit.handover_check
            child.max_bytes, child.input_bytes = unit.max_bytes, unit.input_bytes // 2
            self.segments[unit.segment].appendleft(child)
        self.partitions[unit.partition].open_units += 1

    def feed(self, unit: Unit) -> list[Action]:
        """Have the file of a unit fed in blocks instead."""
        if unit.pieces[0].kind is PieceKind.ROWS:
            self.cursor.feed_rows(unit.pieces[0])
        else:
            self.cursor.feed(unit.pieces[0].file)
        return self.leave_partition(unit)

    def recut(self, unit: Unit, report: StreamTooLarge | RowsTooLarge) -> list[Action]:
        """Cut a unit that decodes to more than expected, using what the worker reported."""
        actions: list[Action] = []
        file = report.file
        rest = [p for p in unit.pieces if p.file != file]
        if rest:
            self.segments[0].appendleft(self.new_unit(rest))
        if isinstance(report, StreamTooLarge):
            if report.compressed_bytes:
                ratio = min(report.decoded_bytes / report.compressed_bytes, _MAX_RATIO)
                self.cursor.ratio = max(self.cursor.ratio, ratio)
            self.cursor.feed(file)
        else:
            first = next(p.start for p in unit.pieces if p.file == file)
            max_bytes = max(unit.max_bytes, MIN_ROWS_BYTES)
            self.cursor.cut_at_row_groups(file, report.groups, report.n_rows, max_bytes, first, report.measured)
            if report.whole:
                actions.append(self._commit_file_end(file, report.n_rows))
        return actions + self.leave_partition(unit)

    def give_up(self, unit: Unit) -> list[Action]:
        """Give up a unit that cannot be done in this run.

        For the first segment, that is its range of the input. A unit of a later segment cannot be separated from
        its neighbours any more, so everything of its partition is given up: its other units are forgotten too, and
        what they hold is freed.
        """
        if unit.segment == 0:
            return self.scratch.free(unit.scratch_paths) + self.leave_partition(unit)
        partition = self.partitions.pop(unit.partition, None)
        self.under_way.subtract(partition.counted() if partition is not None else ())
        dropped = [unit]
        for queue in self.segments:
            for other in [u for u in queue if u.partition == unit.partition and u is not unit]:
                queue.remove(other)
                dropped.append(other)
        paths = [path for u in dropped for path in u.scratch_paths]
        staged = [f.path for f in partition.files if f.kind is not FileKind.LISTED] if partition is not None else []
        return [
            *self.scratch.free(paths + (partition.scratch if partition is not None else [])),
            *([DiscardFiles(staged)] if staged else []),
        ]

    # -- partitions ---------------------------------------------------------------------------------------------------
    def add_result(self, unit: Unit, report: Done, input_bytes: int) -> list[Action]:
        """Add what a unit wrote to its partition, and queue what it hands over to the next segment."""
        partition = self.partitions[unit.partition]
        partition.add(unit, report.files)
        partition.covered += report.covered
        partition.parts.append((unit.segment, report.ledger))
        self.under_way.update(counts_of(report.ledger))
        actions: list[Action] = []
        handover = report.handover
        if handover is not None and not handover.rows:
            actions.append(DiscardFiles([handover.path]))
        elif handover is not None:
            self.scratch.add(handover.path, handover.n_bytes)
            partition.open_units += 1
            successor = self.new_unit(unit.pieces, segment=unit.segment + 1, partition=unit.partition)
            successor.handover, successor.handover_rows = handover.path, (0, handover.rows)
            successor.n_records, successor.handover_check = handover.rows, handover.check
            successor.input_bytes = input_bytes
            self.segments[successor.segment].append(successor)
        partition.open_units -= 1
        partition.n_done += 1
        partition.scratch += unit.scratch_paths
        if not partition.open_units:
            actions += self._commit(unit.partition)
        return actions

    def leave_partition(self, unit: Unit) -> list[Action]:
        """Remove a unit from its partition, which continues without it.

        Its work is done under another partition, or not in this run.
        """
        partition = self.partitions.get(unit.partition)
        if partition is None:
            return []
        partition.open_units -= 1
        if partition.open_units:
            return []
        if partition.n_done:
            return self._commit(unit.partition)
        del self.partitions[unit.partition]
        return []

    def begin_commits(self) -> list[Action]:
        """Commit what is done of open partitions, so that a resumed run does not repeat it.

        Where documents went on to a later segment, a partition is not whole: nothing is committed then.
        """
        if len(self.segments) > 1:
            return []
        numbers = [number for number, partition in self.partitions.items() if partition.n_done]
        return [action for number in numbers for action in self._commit(number)]

    def replace_files(self, unit: Unit, report: Done) -> ReplaceFiles:
        """Replace committed output files by those that a unit wrote."""
        assert unit.rewrite is not None
        self.n_committing += 1
        rewrite = unit.rewrite
        content = next((regroup.content for regroup in rewrite.regroups if regroup.partition_by), None)
        return ReplaceFiles(unit.id, rewrite.old, report.files, rewrite.names, content)

    def commit_ended(self, n_bytes: int = 0) -> None:
        """Record that a commit is through, or failed."""
        self.n_committing -= 1
        self.unsynced_bytes -= n_bytes

    def _commit(self, partition_id: int) -> list[Action]:
        partition = self.partitions.pop(partition_id)
        self.under_way.subtract(partition.counted())
        ledger = Ledger()
        for _, part in sorted(partition.parts, key=lambda p: p[0]):
            ledger.merge(part)
        self.n_committing += 1
        self.unsynced_bytes += sum(f.n_bytes or 0 for f in partition.files)
        self.ledger.merge(ledger)
        commit = CommitPartition(
            partition_id, partition.first, partition.sampling_step, partition.covered, partition.files, ledger.to_dict()
        )
        return [commit, *self.scratch.free(partition.scratch)]

    def _commit_file_end(self, file: int, n_rows: int) -> CommitPartition:
        """Record in the log where the file ends, so that the end of the run can check that all of it was done."""
        self.n_committing += 1
        piece = Piece(file, PieceKind.ROWS, self.cursor.files.paths[file], n_rows, n_rows)
        return CommitPartition(
            -1, piece, self.sampling_step, [CoveredRange(file, n_rows, n_rows, True)], [], Ledger().to_dict()
        )
