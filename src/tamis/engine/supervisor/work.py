"""Work under way: units in queues, the partitions they belong to, scratch files, what is to be committed. Pure.

A partition is everything that comes from one unit of the first segment; it is committed as one, when its last unit is done.
"""

from __future__ import annotations

from collections import Counter, deque

from tamis.engine.ledger import Ledger
from tamis.engine.messages import Done
from tamis.engine.supervisor.actions import Action, Commit, Discard, Note
from tamis.engine.supervisor.cursor import Cursor
from tamis.engine.supervisor.nodes import Node
from tamis.engine.supervisor.pace import Pace
from tamis.engine.supervisor.pool import Pool
from tamis.engine.supervisor.remedies import Remedies
from tamis.engine.supervisor.scratch import Scratch
from tamis.engine.supervisor.state import Config, Partition, Worker
from tamis.engine.supervisor.unfit import Unfit
from tamis.engine.supervisor.units import Kind, Piece, Unit
from tamis.memory.predictor import Predictor


class Work(Pool):
    """The part of the supervisor's state that is about work; dispatch.py hands it out, after_failure.py takes it back."""

    def __init__(
        self,
        config: Config,
        cursor: Cursor,
        predictors: list[Predictor],
        step: int = 0,
        remedies: Remedies | None = None,
    ) -> None:
        super().__init__(config, predictors)
        self.cursor, self.step = cursor, step
        self.pace = Pace(len(config.fixed_workers), config.timeout_s, config.expected_s)
        self.queues: list[deque[Unit]] = [deque() for _ in config.fixed_workers]
        self.feeds: deque[Unit] = deque()
        self.partitions: dict[int, Partition] = {}
        self.ledger = Ledger()
        self.under_way: Counter[str] = Counter()  # counted by units whose partition is not through all segments yet
        self._n_partitions = 0
        self.schemas: dict[str, str] = {}  # output file -> schema, as committed
        self.stopping: str = ""
        self.fatal: str = ""
        self.fatal_kind: str = ""
        self.infeasible: list[str] = []
        self.n_stage_failures = 0
        self.last_failure = "a stage"  # that set a document aside
        self.first_failure = ""  # of a document: stage, error, place, line of code
        self.n_seen = 0  # records of units that are done, committed or not
        self._unfit: list[Unfit] = []  # the last documents that did not fit, with nothing that fitted in between
        self.n_committing = 0
        self.unsynced_bytes = 0
        self.scratch = Scratch()  # blocks waiting or being worked on
        self.remedies = remedies or Remedies()  # those of an earlier sampling step stay in force
        self._next_unit = 1
        self._n_stillborn = 0  # workers in a row that died before they were ready
        self._n_setup_deaths = 0  # ... in a row that died while a stage was set up

    def _unit(self, pieces: list[Piece], segment: int = 0, partition: int = -1) -> Unit:
        unit = Unit(self._next_unit, pieces, segment=segment, partition=partition, step=self.step)
        self._next_unit += 1
        if partition < 0:
            self.partitions[unit.partition] = Partition(pieces[0], self.step)
            self._n_partitions += 1
        return unit

    def _close_unit(self, unit: Unit) -> list[Action]:
        """Close one unit of a partition; commit the partition if it was the last."""
        partition = self.partitions[unit.partition]
        partition.open_units -= 1
        partition.n_done += 1
        partition.scratch += held_by(unit)
        return self._commit_partition(unit.partition) if not partition.open_units else []

    def _leave_partition(self, unit: Unit) -> list[Action]:
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
            return self._commit_partition(unit.partition)
        del self.partitions[unit.partition]
        return []

    def _commit_partition(self, partition_id: int) -> list[Action]:
        partition = self.partitions.pop(partition_id)
        self.under_way.subtract(partition.counted())
        ledger = Ledger()
        for _, part in sorted(partition.parts, key=lambda p: p[0]):
            ledger.merge(part)
        self.n_committing += 1
        self.unsynced_bytes += sum(f.n_bytes or 0 for f in partition.files)
        self.ledger.merge(ledger)
        actions: list[Action] = [
            Commit(partition_id, partition.first, partition.step, partition.covered, partition.files, ledger.to_dict())
        ]
        return actions + self._free_scratch(partition.scratch)

    def _commit_size(self, file: int, n_rows: int) -> Commit:
        """Let the log know where the file ends, so that the end of the run can tell whether all of it was done."""
        self.n_committing += 1
        piece = Piece(file, Kind.ROWS, self.cursor.files.paths[file], n_rows, n_rows)
        return Commit(-1, piece, self.step, [(file, n_rows, n_rows, True)], [], Ledger().to_dict())

    def _free_scratch(self, paths: list[str]) -> list[Action]:
        gone = self.scratch.free(paths)
        return [Discard(gone)] if gone else []

    def _discard_report(self, report: Done) -> list[Action]:
        """Remove what a report that nobody wants any more has made."""
        return [Discard(report.made_paths)]

    def stop(self, why: str) -> list[Action]:
        """Finish what is committed, start nothing new."""
        self.stopping = self.stopping or why
        actions = [a for w in self.workers.values() if not w.dying for a in self._kill(w, "stopping")]
        # What is done of partitions that were cut is not done again. Where documents went on to a later segment, it is not whole.
        if len(self.queues) == 1 and self.fatal_kind != "disk":
            actions += [
                a
                for partition, about in list(self.partitions.items())
                if about.n_done
                for a in self._commit_partition(partition)
            ]
        return [Note("stop", why), *actions]

    def _stop_fatal(self, kind: str, why: str) -> list[Action]:
        if not self.fatal:
            self.fatal, self.fatal_kind = why, kind
        return self.stop(why)

    def _check_rate(self) -> list[Action]:
        """Stop early if a stage fails on (nearly) everything: the mistake is in the stage, not in the data."""
        n = self.n_stage_failures
        seen = max(self.ledger.records.n - self.ledger.not_sampled.n, self.n_seen, n)
        if n >= 20 and n > max(self.config.rate_limit * 10, 0.01) * seen and not self.stopping:
            first = f"; first: {self.first_failure}" if self.first_failure else ""
            return self.stop(
                f"{self.last_failure} fails on {n} of {seen} documents so far: see `tamis quarantine`{first}"
            )
        return []

    def _at(self, worker: Worker | None) -> Node | None:
        """Return the node of a worker, for `_dispatch`."""
        return self.nodes.get(worker.node) if worker is not None else None


def held_by(unit: Unit) -> list[str]:
    """Return the scratch files that a unit reads."""
    if unit.segment > 0:
        return [unit.handover]
    return [p.path for p in unit.pieces if p.kind in (Kind.BLOCK, Kind.ROW_BLOCK)]
