"""The supervisor: plans, grants memory, recovers, decides what to commit. A pure state machine.

Events come in as method calls with the time; decisions go out as actions (actions.py). It never reads a clock, a file or
/proc, so tests drive it with lists of events and simulate faults by the thousand.

One rule for memory: the caps of busy workers never add up to more than the pool, and a worker gets a cap only together with
a unit. One rule for failures: every retry changes something (recovery.py).
"""

from __future__ import annotations

from dataclasses import replace

from tamis.engine.activity import is_setting_up
from tamis.engine.messages import Covered, Done, Failure, RowsTooLarge, StreamTooLarge, Vitals
from tamis.engine.supervisor.actions import Action, Discard, Kill, Replace, Stop
from tamis.engine.supervisor.after_failure import Setbacks
from tamis.engine.supervisor.cutting import without
from tamis.engine.supervisor.deaths import judge_death
from tamis.engine.supervisor.handles import is_short_of_descriptors
from tamis.engine.supervisor.state import NodeSpec, counts_of
from tamis.engine.supervisor.units import MIN_ROWS_BYTES, Kind, Mode, Piece, Recast, Unit
from tamis.engine.supervisor.work import held_by

MAX_STILLBORN = 20
_OWN_DEATHS = ("", "timeout", "over its cap")  # why a worker was killed: not for the sake of others


class Supervisor(Setbacks):
    """Events in, actions out. What it keeps in mind: workers (pool.py), work (work.py)."""

    def tick(self, now_s: float) -> list[Action]:
        """Time passes: deadlines, then whatever can be started."""
        actions: list[Action] = []
        for worker in self.workers.values():
            if (
                worker.unit is not None
                and not worker.dying
                and not worker.held
                and now_s - worker.since_s > self.config.timeout_s
            ):
                actions += self._kill(worker, "timeout")
        return actions + self.remedies.due(self, now_s) + self._dispatch(now_s)

    def ready(self, worker_id: int, now_s: float, vitals: Vitals | None = None) -> list[Action]:
        worker = self.workers.get(worker_id)
        if worker is None:
            return self._dispatch(now_s)
        worker.ready = True
        if vitals is not None:
            worker.base_bytes, worker.file_bytes = vitals.floor_bytes, vitals.file_bytes
            worker.base_data_bytes = vitals.data_bytes
        self._n_stillborn = 0
        # A kill that was asked for before the process existed has hit nobody.
        again: list[Action] = [Kill(worker.id, worker.why_killed)] if worker.dying else []
        return again + self._dispatch(now_s, self._at(worker))

    def set_up(self, worker_id: int, fence: int, kept_bytes: int, peak_bytes: int, now_s: float) -> list[Action]:
        """Record that a worker's stages are set up: what they keep, and what it took at most.

        Others may follow, if there is room for them.
        """
        worker = self.workers.get(worker_id)
        if worker is None or worker.fence != fence:
            return []
        self._n_setup_deaths = 0
        self.grants.learn_setup(worker, kept_bytes, peak_bytes)
        return self._dispatch(now_s, self._at(worker))

    def read(
        self, worker_id: int, fence: int, n_records: int, cut: int, decoded_bytes: int = -1, largest_record: int = 0
    ) -> None:
        """Record what a worker's unit holds before stages run: how to cut it, should it fail."""
        worker = self.workers.get(worker_id)
        if worker is not None and worker.unit is not None and worker.fence == fence:
            unit = worker.unit
            unit.n_records, unit.cut = n_records, cut
            unit.decoded_bytes, unit.largest_record = decoded_bytes, largest_record

    def block(
        self, worker_id: int, fence: int, piece: Piece, n_bytes: int, compressed: int, now_s: float
    ) -> list[Action]:
        """Record that a feeder has written a block, having read `compressed` bytes of its file so far."""
        worker = self.workers.get(worker_id)
        if worker is None or worker.unit is None or worker.fence != fence:
            return [Discard([piece.path])]
        worker.since_s = now_s
        worker.unit.compressed_bytes = compressed
        worker.unit.n_failures = 0
        worker.unit.pieces = without(worker.unit.pieces, piece)
        self.scratch.add(piece.path, n_bytes)
        self.queues[0].append(self._unit([piece]))
        worker.held = True
        return self._dispatch(now_s, self._at(worker))

    def done(self, worker_id: int, fence: int, report: Done, now_s: float) -> list[Action]:
        worker = self.workers.get(worker_id)
        if worker is None or worker.unit is None or worker.fence != fence:
            self.counters["late"] += 1
            return self._discard_report(report)
        unit, worker.unit = worker.unit, None
        worker.n_units += 1
        if (node := self.nodes.get(worker.node)) is not None:
            node.n_units += 1
        self.grants.learn(worker, unit, report)
        input_bytes = unit.input_bytes if unit.segment else report.decoded_bytes
        if unit.mode is Mode.RUN:
            self._unfit.clear()
            self.pace.learn(unit.segment, input_bytes, report.worked_s)
        actions: list[Action] = self._recycle(worker, report) + self.remedies.after_unit(self, worker.id)
        if unit.mode is Mode.RECAST:
            return actions + self._recast_done(unit, report, now_s)
        partition = self.partitions.get(unit.partition)
        if partition is None:  # given up because of another of its units
            return (
                actions
                + self._discard_report(report)
                + self._free_scratch(held_by(unit))
                + self._dispatch(now_s, self._at(worker))
            )
        if unit.segment == 0:
            self.n_seen += report.ledger.records.n - report.ledger.not_sampled.n
        partition.add(unit, report.files)
        partition.covered += report.covered
        partition.parts.append((unit.segment, report.ledger))
        self.under_way.update(counts_of(report.ledger))
        made = report.handover
        if made is not None and not made.rows:
            actions.append(Discard([made.path]))
        elif made is not None:
            self.scratch.add(made.path, made.n_bytes)
            partition.open_units += 1
            nxt = self._unit(unit.pieces, segment=unit.segment + 1, partition=unit.partition)
            nxt.handover, nxt.handover_rows, nxt.n_records = made.path, (0, made.rows), made.rows
            nxt.handover_check, nxt.input_bytes = made.check, input_bytes
            self.queues[nxt.segment].append(nxt)
        actions += self._close_unit(unit) + self._check_rate()
        return actions + self._dispatch(now_s, self._at(worker))

    def too_large(
        self, worker_id: int, fence: int, report: StreamTooLarge | RowsTooLarge, now_s: float
    ) -> list[Action]:
        """Cut a unit that decodes to more than expected, using what the worker reported."""
        worker = self.workers.get(worker_id)
        if worker is None or worker.unit is None or worker.fence != fence:
            return []
        unit, worker.unit = worker.unit, None
        actions: list[Action] = []
        file = report.file
        rest = [p for p in unit.pieces if p.file != file]
        if rest:
            self.queues[0].appendleft(self._unit(rest))
        if isinstance(report, StreamTooLarge):
            if report.compressed_bytes:
                ratio = min(report.decoded_bytes / report.compressed_bytes, 1000.0)
                self.cursor.ratio = max(self.cursor.ratio, ratio)
            self.cursor.feed(file)
        else:
            first = next(p.start for p in unit.pieces if p.file == file)
            block_bytes = max(unit.block_bytes, MIN_ROWS_BYTES)
            self.cursor.expand_rows(file, report.groups, report.n_rows, block_bytes, first, report.measured)
            if report.whole:
                actions.append(self._commit_size(file, report.n_rows))
        return actions + self._leave_partition(unit) + self._dispatch(now_s, self._at(worker))

    def failed(self, worker_id: int, fence: int, report: Failure, now_s: float) -> list[Action]:
        worker = self.workers.get(worker_id)
        if worker is None or worker.unit is None or worker.fence != fence:
            return []
        unit, worker.unit = worker.unit, None
        actions: list[Action] = []
        if report.kind != "memory":  # after a memory failure the worker exits by itself
            actions += [Stop(worker.id)]
        worker.why_killed = worker.why_killed or "replaced"
        return actions + self._recover(unit, worker, report) + self._dispatch(now_s, self._at(worker))

    def died(self, worker_id: int, how: str, signal: int, now_s: float, stage: str = "") -> list[Action]:
        """Handle the death of a worker within `stage`.

        `how` says with which status; what that means depends on who killed it and how full it was.
        """
        worker = self._drop(worker_id)
        if worker is not None:
            self.leakage.gone(worker.id, worker.segment, heir=False)
            self.handles.gone(worker.id)
        if worker is None or worker.unit is None:
            if worker is not None and not worker.ready and not worker.dying:
                self._n_stillborn += 1
                if self._n_stillborn >= MAX_STILLBORN:
                    return self._stop_fatal(
                        "worker", f"{self._n_stillborn} workers in a row died while starting, the last one with {how}"
                    )
            return self._dispatch(now_s)
        unit = worker.unit
        self.counters["crashes"] += 0 if worker.why_killed else 1
        node = self.nodes.get(worker.node)
        grown = worker.used_bytes - (node or self).config.worker_bytes  # the cap counts from what a worker holds anyway
        kept = self.grants.kept_by(worker, worker.segment) if worker.segment >= 0 else worker.kept_bytes
        report = judge_death(worker.why_killed, how, signal, grown, worker.cap_bytes, worker.was_alone, stage, kept)
        if report.kind in ("memory", "crash") and not worker.why_killed and is_short_of_descriptors(worker.vitals):
            report = replace(
                report, kind="descriptors", error=f"{report.error} (EMFILE: it had hardly any file descriptor left)"
            )
        if is_setting_up(stage) and unit.mode is Mode.RUN and worker.why_killed in _OWN_DEATHS:
            return self._died_setting_up(unit, worker, report) + self._dispatch(now_s, self._at(worker))
        return self._recover(unit, worker, report) + self._dispatch(now_s, self._at(worker))

    def committed(self, partition_id: int, covered: list[Covered], n_bytes: int, now_s: float) -> list[Action]:
        self.n_committing -= 1
        self.unsynced_bytes -= n_bytes
        self.counters["committed"] += 1
        return self._dispatch(now_s) if len(self.nodes) == 1 else []  # of many, the next tick looks at all

    def commit_failed(self, why: str) -> list[Action]:
        self.n_committing -= 1
        return self._stop_fatal("disk", why)

    def remedy(self, remedy: str, now_s: float) -> list[Action]:
        """Apply what an alert asks for (remedies.py)."""
        return self.remedies.apply(self, remedy, now_s)

    def node_up(self, spec: NodeSpec, now_s: float) -> list[Action]:
        """Add a machine that has joined (again), so that work can be assigned to it."""
        lost = self.node_down(spec.id, now_s) if spec.id in self.nodes else []
        return [*lost, *self._dispatch(now_s, self._admit(spec))]

    def node_down(self, node_id: int, now_s: float) -> list[Action]:
        """Remove a machine that is gone, with its workers; what they were doing is done again elsewhere."""
        node = self._forget(node_id)
        actions: list[Action] = []
        for worker in list(node.workers.values()) if node is not None else ():
            worker.why_killed = worker.why_killed or "its node is gone"
            actions += self.died(worker.id, "its node is gone", 9, now_s)
        return actions

    @property
    def finished(self) -> bool:
        """Nothing left that could still be done (in this step)."""
        if self.n_committing or (self.busy and not self.stopping):
            return False
        if self.stopping:
            return not self.workers
        return self.cursor.exhausted and not any(self.queues) and not self.feeds

    @property
    def bytes_left(self) -> int:
        """Input bytes that are not done yet (compressed bytes where the input is compressed)."""
        feeds = [w.unit for w in self.workers.values() if w.unit is not None and w.unit.mode is Mode.FEED] + list(
            self.feeds
        )
        left = self.cursor.bytes_left
        for unit in feeds:
            if unit.pieces:
                left += max(0, self.cursor.files.sizes[unit.pieces[0].file] - unit.compressed_bytes)
        busy = [w.unit for w in self.workers.values() if w.unit is not None] + list(self.queues[0])
        n = len(self.queues)  # what waits for the last of two segments is half done
        each = (self.cursor.files.total_bytes - self.cursor.bytes_left) // max(1, self._n_partitions)
        for unit in busy:
            if unit.mode is Mode.RUN:
                sizes = [p.end - p.start for p in unit.pieces if p.kind is Kind.BYTES]
                left += (sum(sizes) or each) * (n - unit.segment) // n  # rows and blocks do not say how many bytes
        left += sum(len(queue) * each * (n - i) // n for i, queue in enumerate(self.queues) if i)
        return min(left, self.cursor.files.total_bytes)

    def recast(self, schema: str, names: list[str], folder: str) -> None:
        """Rewrite these output files with the schema of the whole run."""
        for name in names:
            self.queues[0].append(self._recast_unit(Recast(schema=schema, path=f"{folder}/{name}", old=name)))

    def join_schemas(self, schemas: list[str]) -> None:
        self.queues[0].append(self._recast_unit(Recast(join=schemas)))

    def _recast_unit(self, recast: Recast) -> Unit:
        unit = self._unit([Piece(0, Kind.START, "", 0, 1)])
        self.partitions.pop(unit.partition)
        unit.mode, unit.recast = Mode.RECAST, recast
        return unit

    def _recast_done(self, unit: Unit, report: Done, now_s: float) -> list[Action]:
        assert unit.recast is not None
        if unit.recast.join:
            self.schemas["*"] = report.schema
            return self._dispatch(now_s)
        self.n_committing += 1
        return [Replace(unit.id, unit.recast.old, report.files[0]), *self._dispatch(now_s)]
