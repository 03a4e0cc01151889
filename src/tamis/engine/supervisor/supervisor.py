"""The supervisor: plans, grants memory, recovers, decides what to commit. A pure state machine.

Events come in through `Supervisor.handle` with the time; decisions go out as actions (actions.py). `TRANSITIONS` lists
the handler of every event in every state of the worker that it is about. No clock, file or /proc is read, so tests
drive the supervisor with lists of events and simulate faults by the thousand.

One rule for memory: the caps of busy workers never add up to more than the pool, and a worker gets a cap only together
with a unit (memory_arbiter.py). One rule for failures: every retry changes something (retry_policy.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tamis.engine.activity import is_setting_up
from tamis.engine.messages import (
    Block,
    Done,
    Failure,
    FailureKind,
    Read,
    Ready,
    RowsTooLarge,
    SetUp,
    StreamTooLarge,
    UnitMessage,
)
from tamis.engine.supervisor.actions import Action, Committed, DiscardFiles, KillWorker, StopWorker
from tamis.engine.supervisor.alert_orders import AlertHandler, AlertOrders
from tamis.engine.supervisor.cursor import Cursor
from tamis.engine.supervisor.dispatcher import Dispatcher
from tamis.engine.supervisor.events import AlertFired, Event, MemoryMeasured, NodeJoined, NodeLost, StopRequested, Tick
from tamis.engine.supervisor.handles import is_short_of_descriptors
from tamis.engine.supervisor.memory_arbiter import MemoryArbiter
from tamis.engine.supervisor.recovery import Recovery
from tamis.engine.supervisor.retry_policy import RetryPolicy, judge_death
from tamis.engine.supervisor.shutdown import Shutdown
from tamis.engine.supervisor.state import Config, FatalKind, KillReason, RunState, Worker, WorkerState
from tamis.engine.supervisor.unproven import UnprovenStages
from tamis.engine.supervisor.work_queue import WorkQueue
from tamis.engine.supervisor.worker_health import WorkerHealth
from tamis.engine.supervisor.worker_pool import WorkerPool
from tamis.engine.units import Mode, Rewrite, Unit
from tamis.engine.workers_interface import Died, Received
from tamis.memory.predictor import Predictor

MAX_STILLBORN = 20
_OWN_DEATHS = (None, KillReason.TIMEOUT, KillReason.OVER_CAP)  # reasons of kills that are not for the sake of others


class Supervisor:
    """Handles the events of a run, or of one sampling step of it, with the parts that it owns.

    `pool` has the workers and nodes, `queue` the work, `arbiter` grants memory, `policy` decides about failed units,
    `recovery` carries that out, `dispatcher` assigns work to workers, `health` decides when a worker is replaced,
    `status` is the state of the run.
    """

    def __init__(
        self,
        config: Config,
        cursor: Cursor,
        predictors: list[Predictor],
        step: int = 0,
        orders: AlertOrders | None = None,
    ) -> None:
        """Create a supervisor. `orders` of alerts in an earlier sampling step stay in force."""
        self.config = config
        self.schema = ""  # of the whole output, once `join_schemas` is through
        self.described: str | None = None  # the file with the samples of the run, once `describe_samples` is through
        self.status = RunState()
        orders = orders if orders is not None else AlertOrders()
        workers: dict[int, Worker] = {}
        self.arbiter = MemoryArbiter(config, predictors, workers)
        self.pool = WorkerPool(config, self.arbiter, workers, self.status.counters)
        self.queue = WorkQueue(cursor, len(config.fixed_workers), step)
        self.health = WorkerHealth(self.arbiter)
        self.policy = RetryPolicy(bool(config.fail_fast))
        self._unproven = UnprovenStages(config.proven, config.fail_fast is None and config.quarantine_share < 1.0)
        self.dispatcher = Dispatcher(self.status, self.pool, self.queue, self.health, orders)
        self._shutdown = Shutdown(self.status, self.pool, self.queue)
        self._recovery = Recovery(
            self.policy,
            self.status,
            self.pool,
            self.queue,
            self.arbiter,
            self.health.handles,
            self._shutdown,
            self._unproven,
        )
        self._alerts = AlertHandler(orders, self.status, self.pool, self.queue, self.arbiter, self._shutdown)
        self._n_stillborn = 0  # workers in a row that died before they were ready

    # -- what the caller asks -----------------------------------------------------------------------------------------
    def handle(self, event: Event, now_s: float) -> list[Action]:
        """Return what is to be done after an event."""
        subject = event.message if isinstance(event, Received) else event
        return TRANSITIONS[type(subject), self.state_of(event)](self, event, now_s)

    def state_of(self, event: Event) -> WorkerState | None:
        """Return the state of the worker that an event is about; None if it is about none."""
        if not isinstance(event, Received | Died):
            return None
        worker = self.pool.workers.get(event.worker)
        if worker is None:
            return WorkerState.UNKNOWN
        if isinstance(event, Received) and not isinstance(event.message, Ready) and event.message.fence != worker.fence:
            return WorkerState.STALE
        if worker.unit is not None:
            return WorkerState.BUSY
        return WorkerState.IDLE if worker.ready else WorkerState.STARTING

    @property
    def finished(self) -> bool:
        """True if nothing is left that could still be done (in this step)."""
        if self.queue.n_committing or (self.pool.busy and not self.status.stopping):
            return False
        if self.status.stopping:
            return not self.pool.workers
        return self.queue.is_empty and not self._unproven.is_waiting

    @property
    def remaining_bytes(self) -> int:
        """Input bytes that are not done yet (compressed bytes where the input is compressed)."""
        return self.queue.remaining_bytes(self.pool.units)

    def join_schemas(self, schemas: list[str]) -> None:
        """Have a worker join the schemas of output files into `schema`."""
        self.queue.add_rewrite(Rewrite(schemas=schemas))

    def describe_samples(self, path: str) -> None:
        """Have a worker make excerpts of the records in a file of samples; without `described`, that failed."""
        self.described = None
        self.queue.add_rewrite(Rewrite(samples=path))

    def rewrite(self, work: Sequence[Rewrite]) -> None:
        """Rewrite output files: with the schema of the whole run, or of another size."""
        for rewrite in work:
            self.queue.add_rewrite(rewrite)

    # -- events about the run -----------------------------------------------------------------------------------------
    def _on_tick(self, event: Tick, now_s: float) -> list[Action]:
        return [
            *self.pool.enforce_timeout(now_s),
            *self._alerts.due(now_s),
            *self._judge_unproven(),
            *self.dispatcher.dispatch(now_s),
        ]

    def _judge_unproven(self) -> list[Action]:
        """End the run if nothing is left but units of a stage that has failed on every document."""
        if not self._unproven.is_waiting or self.pool.busy or not self.queue.is_empty or self.status.is_ending:
            return []
        blame = self._unproven.blame(is_last=True)
        return self._shutdown.fail(*blame) if blame is not None else []

    def _on_measured(self, event: MemoryMeasured, now_s: float) -> list[Action]:
        return self.pool.enforce_memory(event.node, event.used_bytes, event.per_worker, now_s)

    def _on_committed(self, event: Committed, now_s: float) -> list[Action]:
        if event.error:
            self.queue.commit_ended()
            return self._shutdown.fail(FatalKind.DISK, event.error)
        self.queue.commit_ended(event.n_bytes)
        self.status.counters.committed += 1
        # With several nodes, the next tick looks at all of them.
        return self.dispatcher.dispatch(now_s) if len(self.pool.nodes) == 1 else []

    def _on_alert(self, event: AlertFired, now_s: float) -> list[Action]:
        return self._alerts.apply(event.order, now_s)

    def _on_stop_requested(self, event: StopRequested, now_s: float) -> list[Action]:
        return self._shutdown.stop(event.why)

    def _on_node_joined(self, event: NodeJoined, now_s: float) -> list[Action]:
        actions = self._lose_node(event.spec.id, now_s) if event.spec.id in self.pool.nodes else []
        return actions + self.dispatcher.dispatch(now_s, self.pool.add_node(event.spec))

    def _on_node_lost(self, event: NodeLost, now_s: float) -> list[Action]:
        return self._lose_node(event.node, now_s)

    def _lose_node(self, node_id: int, now_s: float) -> list[Action]:
        """Remove a node with its workers; their units are done again elsewhere."""
        node = self.pool.remove_node(node_id)
        actions: list[Action] = []
        for worker in list(node.workers.values()) if node is not None else ():
            worker.kill_reason = worker.kill_reason or KillReason.NODE_LOST
            actions += self.handle(Died(worker.id, str(KillReason.NODE_LOST), 9), now_s)
        return actions

    # -- events about a worker ----------------------------------------------------------------------------------------
    def _ignore(self, event: Event, now_s: float) -> list[Action]:
        return []

    def _dispatch(self, event: Event, now_s: float) -> list[Action]:
        return self.dispatcher.dispatch(now_s)

    def _dispatch_on_node_of(self, worker: Worker, now_s: float) -> list[Action]:
        return self.dispatcher.dispatch(now_s, self.pool.node_of(worker))

    def _on_ready(self, event: Received, now_s: float) -> list[Action]:
        worker, message = self.pool.workers[event.worker], event.message
        assert isinstance(message, Ready)
        worker.ready = True
        vitals = message.vitals
        worker.base_bytes, worker.file_bytes = vitals.floor_bytes, vitals.file_bytes
        worker.base_data_bytes = vitals.data_bytes
        self._n_stillborn = 0
        # A kill that was requested before the process existed has hit no process.
        repeated: list[Action] = [KillWorker(worker.id, worker.kill_reason)] if worker.kill_reason is not None else []
        return repeated + self._dispatch_on_node_of(worker, now_s)

    def _on_set_up(self, event: Received, now_s: float) -> list[Action]:
        """Record what the stages of a worker keep and took at most; other workers may follow if there is room."""
        worker, message = self.pool.workers[event.worker], event.message
        assert isinstance(message, SetUp)
        self.policy.setup_succeeded()
        self.arbiter.learn_setup(worker, message.retained_bytes, message.peak_bytes)
        return self._dispatch_on_node_of(worker, now_s)

    def _on_read(self, event: Received, now_s: float) -> list[Action]:
        """Record what a unit holds before stages run: how to cut it, should it fail."""
        unit, message = self.pool.workers[event.worker].unit, event.message
        assert unit is not None
        assert isinstance(message, Read)
        unit.n_records, unit.cut = message.n_records, message.cut
        unit.decoded_bytes, unit.largest_record = message.decoded_bytes, message.largest_record
        return []

    def _on_block(self, event: Received, now_s: float) -> list[Action]:
        """Queue a block of a feeder, which then waits for room in the queue."""
        worker, message = self.pool.workers[event.worker], event.message
        assert worker.unit is not None
        assert isinstance(message, Block)
        worker.since_s = now_s
        self.queue.add_block(worker.unit, message.piece, message.n_bytes, message.compressed)
        worker.is_blocked = True
        return self._dispatch_on_node_of(worker, now_s)

    def _discard_block(self, event: Received, now_s: float) -> list[Action]:
        assert isinstance(event.message, Block)
        return [DiscardFiles([event.message.piece.path])]

    def _on_done(self, event: Received, now_s: float) -> list[Action]:
        worker, unit, report = self._take_unit(event)
        assert isinstance(report, Done)
        worker.n_units += 1
        if (node := self.pool.node_of(worker)) is not None:
            node.n_units += 1
        self.arbiter.learn(worker, unit, report)
        input_bytes = unit.input_bytes if unit.segment else report.decoded_bytes
        if unit.mode is Mode.RUN:
            self.policy.unit_succeeded()
            self.dispatcher.pace.learn(unit.segment, input_bytes, report.worked_s)
            for waiting in self._unproven.prove(book.name for book in report.ledger.stages if book.into.n):
                self.queue.requeue(waiting)
        actions = self._recycle(worker, report) + self._alerts.after_unit(worker)
        if unit.rewrite is not None:
            return actions + self._finish_rewrite(unit, report) + self.dispatcher.dispatch(now_s)
        if unit.partition not in self.queue.partitions:  # given up because of another of its units
            actions += [DiscardFiles(report.staged_paths), *self.queue.scratch.free(unit.scratch_paths)]
        else:
            if self.config.fail_fast and report.first_bad and unit.mode is Mode.RUN:
                self.queue.give_up(unit)
                why = f"a document cannot be processed, and --fail-fast ends the run: {report.first_bad}"
                return [*actions, DiscardFiles(report.staged_paths), *self._shutdown.stop(why)]
            if unit.segment == 0:
                self.status.n_seen += report.ledger.records.n - report.ledger.not_sampled.n
            actions += self.queue.add_result(unit, report, input_bytes) + self._shutdown.check_failure_rate()
        return actions + self._dispatch_on_node_of(worker, now_s)

    def _discard_late_report(self, event: Received, now_s: float) -> list[Action]:
        assert isinstance(event.message, Done)
        self.status.counters.late += 1
        return [DiscardFiles(event.message.staged_paths)]

    def _on_too_large(self, event: Received, now_s: float) -> list[Action]:
        worker, unit, report = self._take_unit(event)
        assert isinstance(report, StreamTooLarge | RowsTooLarge)
        return self.queue.recut(unit, report) + self._dispatch_on_node_of(worker, now_s)

    def _on_failed(self, event: Received, now_s: float) -> list[Action]:
        worker, unit, report = self._take_unit(event)
        assert isinstance(report, Failure)
        actions: list[Action] = []
        is_reused = worker.kill_reason is None and self.policy.may_reuse_worker(unit, report)
        if not is_reused:
            # After a memory failure the worker exits by itself.
            actions = [StopWorker(worker.id)] if report.kind is not FailureKind.MEMORY else []
            worker.kill_reason = worker.kill_reason or KillReason.REPLACED
        actions += self._recovery.recover(unit, worker, report)
        worker.has_failed = True
        return actions + self._dispatch_on_node_of(worker, now_s)

    def _on_death(self, event: Died, now_s: float) -> list[Action]:
        """Handle the death of a worker that had no unit."""
        self._remove(event.worker)
        return self.dispatcher.dispatch(now_s)

    def _on_stillbirth(self, event: Died, now_s: float) -> list[Action]:
        """Handle the death of a worker that was never ready."""
        if not self._remove(event.worker).dying:
            self._n_stillborn += 1
            if self._n_stillborn >= MAX_STILLBORN:
                reason = f"{self._n_stillborn} workers in a row died while starting, the last one with {event.how}"
                return self._shutdown.fail(FatalKind.WORKER, reason)
        return self.dispatcher.dispatch(now_s)

    def _on_death_at_work(self, event: Died, now_s: float) -> list[Action]:
        """Handle the death of a busy worker.

        What it means for the unit depends on who killed it and how full it was.
        """
        worker = self._remove(event.worker)
        unit = worker.unit
        assert unit is not None
        self.status.counters.crashes += not worker.dying
        report = self._judge_death(worker, event)
        if is_setting_up(event.stage) and unit.mode is Mode.RUN and worker.kill_reason in _OWN_DEATHS:
            actions = self._recovery.recover_from_setup_death(unit, worker, report)
        else:
            actions = self._recovery.recover(unit, worker, report)
        return actions + self._dispatch_on_node_of(worker, now_s)

    # -- helpers ------------------------------------------------------------------------------------------------------
    def _take_unit(self, event: Received) -> tuple[Worker, Unit, UnitMessage]:
        """Return a worker that reports, its unit, which it no longer has, and the report."""
        worker, message = self.pool.workers[event.worker], event.message
        unit, worker.unit = worker.unit, None
        assert unit is not None
        assert not isinstance(message, Ready)
        return worker, unit, message

    def _remove(self, worker_id: int) -> Worker:
        worker = self.pool.remove(worker_id)
        assert worker is not None
        self.health.forget(worker)
        return worker

    def _judge_death(self, worker: Worker, event: Died) -> Failure:
        config = self.pool.config_of(worker)
        grown = worker.used_bytes - config.worker_bytes  # the cap counts from what a worker holds anyway
        has_stages = worker.segment >= 0
        retained_bytes = self.arbiter.retained_bytes(worker, worker.segment) if has_stages else worker.retained_bytes
        report = judge_death(
            worker.kill_reason,
            event.how,
            event.signal,
            grown,
            worker.cap_bytes,
            worker.was_alone,
            event.stage,
            retained_bytes,
        )
        if (
            report.kind in (FailureKind.MEMORY, FailureKind.CRASH)
            and not worker.dying
            and is_short_of_descriptors(worker.vitals)
        ):
            error = f"{report.error} (EMFILE: it had hardly any file descriptor left)"
            return replace(report, kind=FailureKind.DESCRIPTORS, error=error)
        return report

    def _recycle(self, worker: Worker, report: Done) -> list[Action]:
        """Replace a worker whose health calls for it."""
        notes, reason = self.health.after_unit(worker, report)
        if reason is None:
            return notes
        self.status.counters.recycled += 1
        self.health.forget(worker, has_heir=True)
        return [*notes, reason, *self.pool.retire(worker)]

    def _finish_rewrite(self, unit: Unit, report: Done) -> list[Action]:
        assert unit.rewrite is not None
        if unit.rewrite.schemas:
            self.schema = report.schema
            return []
        if unit.rewrite.samples:
            self.described = next(iter(report.staged_paths), None)
            return []
        return [self.queue.replace_files(unit, report)]


_Handler = Callable[[Supervisor, Any, float], list[Action]]


def _by_state(default: _Handler, **handlers: _Handler) -> dict[WorkerState, _Handler]:
    """Return the handler for each state of a worker: the one named, or the default."""
    return {state: handlers.get(state.value, default) for state in WorkerState}


_BY_MESSAGE: Mapping[type, dict[WorkerState, _Handler]] = {
    Ready: _by_state(Supervisor._on_ready, unknown=Supervisor._dispatch),
    SetUp: _by_state(Supervisor._ignore, busy=Supervisor._on_set_up, idle=Supervisor._on_set_up),
    Read: _by_state(Supervisor._ignore, busy=Supervisor._on_read),
    Block: _by_state(Supervisor._discard_block, busy=Supervisor._on_block),
    Done: _by_state(Supervisor._discard_late_report, busy=Supervisor._on_done),
    StreamTooLarge: _by_state(Supervisor._ignore, busy=Supervisor._on_too_large),
    RowsTooLarge: _by_state(Supervisor._ignore, busy=Supervisor._on_too_large),
    Failure: _by_state(Supervisor._ignore, busy=Supervisor._on_failed),
    Died: _by_state(
        Supervisor._on_death,
        unknown=Supervisor._dispatch,
        starting=Supervisor._on_stillbirth,
        busy=Supervisor._on_death_at_work,
    ),
}
_OF_THE_RUN: Mapping[type, _Handler] = {
    Tick: Supervisor._on_tick,
    MemoryMeasured: Supervisor._on_measured,
    Committed: Supervisor._on_committed,
    AlertFired: Supervisor._on_alert,
    StopRequested: Supervisor._on_stop_requested,
    NodeJoined: Supervisor._on_node_joined,
    NodeLost: Supervisor._on_node_lost,
}
TRANSITIONS: Mapping[tuple[type, WorkerState | None], _Handler] = {
    **{(event, None): handler for event, handler in _OF_THE_RUN.items()},
    **{(event, state): handler for event, states in _BY_MESSAGE.items() for state, handler in states.items()},
}
"""The handler of every event: by type, and by the state of the worker that it is about (None: the run)."""
