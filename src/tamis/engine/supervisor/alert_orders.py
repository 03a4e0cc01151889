"""Orders of alerts: smaller partitions, a fresh worker, a pause, an orderly end. Pure.

An order is a text: "shrink", "recycle:<worker>" (without a number: the largest), "pause:<seconds>", "stop:<why>". None
of them changes what is written: partitions and pauses never do, and a stopped run resumes with the same command.
"""

from __future__ import annotations

import math
from dataclasses import field

from tamis._dataclasses import dataclass
from tamis.engine.schema import EventKind
from tamis.engine.supervisor.actions import Action, Note
from tamis.engine.supervisor.memory_arbiter import MemoryArbiter
from tamis.engine.supervisor.shutdown import Shutdown
from tamis.engine.supervisor.state import FEEDER, RunState, Worker
from tamis.engine.supervisor.work_queue import WorkQueue
from tamis.engine.supervisor.worker_pool import WorkerPool
from tamis.sizes import format_size

MIN_SHRUNK_BYTES = 1 << 20  # smaller partitions save hardly any memory and cost time
MAX_PAUSE_S = 3600.0
STOP_GRACE_S = 60.0  # for partitions under way when the run is to stop


@dataclass
class AlertOrders:
    """Orders in force. They outlive a supervisor: those of one sampling step hold for the next."""

    paused_until_s: float = -math.inf
    stop_reason: str = ""  # why the run ends once its busy workers are through
    stop_by_s: float = math.inf
    to_recycle: set[int] = field(default_factory=set)  # workers to replace after their unit

    def hold_back(self, now_s: float) -> bool:
        """Return True if nothing new may start."""
        return bool(self.stop_reason) or now_s < self.paused_until_s


class AlertHandler:
    """Carries out the orders of alerts for one supervisor."""

    def __init__(
        self,
        orders: AlertOrders,
        status: RunState,
        pool: WorkerPool,
        queue: WorkQueue,
        arbiter: MemoryArbiter,
        shutdown: Shutdown,
    ) -> None:
        self._orders, self._status, self._pool, self._queue = orders, status, pool, queue
        self._arbiter, self._shutdown = arbiter, shutdown

    def apply(self, order: str, now_s: float) -> list[Action]:
        """Carry out an order, or note that it will be."""
        name, _, argument = order.partition(":")
        if self._status.is_ending:
            return []
        match name:
            case "shrink":
                return self._shrink()
            case "recycle":
                return self._recycle(argument)
            case "pause":
                return self._pause(argument, now_s)
            case "stop":
                return self._stop(argument, now_s)
        return [Note(EventKind.REMEDY, f"unknown remedy {order[:100]!r}: nothing is done")]

    def due(self, now_s: float) -> list[Action]:
        """Return the ordered stop, once no worker is active any more or they have taken too long."""
        orders = self._orders
        if not orders.stop_reason or self._status.stopping or (self._pool.progressing and now_s < orders.stop_by_s):
            return []
        is_done = self._queue.is_empty and not self._pool.busy
        return (
            [] if is_done else self._shutdown.stop(orders.stop_reason)
        )  # what is done anyway is finished, not stopped

    def after_unit(self, worker: Worker) -> list[Action]:
        """Replace a worker that was to be replaced once it is done with its unit."""
        if worker.id not in self._orders.to_recycle:
            return []
        self._orders.to_recycle.discard(worker.id)
        return self._replace(worker) if not worker.dying else []

    def _shrink(self) -> list[Action]:
        """Halve what partitions are now; the ceiling is the partition model's, so later steps of the run keep it."""
        arbiter, workers = self._arbiter, self._pool.workers
        n = max(arbiter.n_seats(bool(self._queue.feeds)), len(workers), 1)
        cap = max([w.cap_bytes for w in workers.values()] + [arbiter.cap_total(n) // n])
        sizes = []
        for segment, model in enumerate(arbiter.predictors):
            size = arbiter.unit_size(segment, cap, may_grow=False)
            model.max_size_bytes = min(model.max_size_bytes, max(size // 2, MIN_SHRUNK_BYTES))
            sizes.append(min(size, model.max_size_bytes))
        text = f"partitions are at most {', '.join(format_size(n) for n in sizes)} from now on"
        return [Note(EventKind.REMEDY, text, {"remedy": "shrink", "sizes": sizes})]

    def _recycle(self, argument: str) -> list[Action]:
        living = {w.id: w for w in self._pool.workers.values() if not w.dying and w.segment != FEEDER}
        if argument:
            worker = living.get(int(argument)) if argument.isdecimal() else None
        else:
            worker = max(living.values(), key=lambda w: (w.used_bytes, -w.id), default=None)
        if worker is None:
            text = f"worker {argument[:20]} is gone already" if argument else "there is no worker to replace"
            return [Note(EventKind.REMEDY, text)]
        if worker.is_idle:
            return self._replace(worker)
        self._orders.to_recycle = {i for i in self._orders.to_recycle if i in self._pool.workers} | {worker.id}
        text = f"worker {worker.id} ({format_size(worker.used_bytes)}) is replaced after its partition"
        return [Note(EventKind.REMEDY, text, {"remedy": "recycle", "worker": worker.id})]

    def _replace(self, worker: Worker) -> list[Action]:
        self._status.counters.recycled += 1
        text = f"worker {worker.id} is replaced: an alert asked for it ({format_size(worker.used_bytes)})"
        return [Note(EventKind.RECYCLE, text, {"remedy": "recycle", "worker": worker.id}), *self._pool.retire(worker)]

    def _pause(self, argument: str, now_s: float) -> list[Action]:
        try:
            seconds = float(argument)
        except ValueError:
            seconds = math.nan
        if not 0 < seconds < math.inf:
            return [Note(EventKind.REMEDY, f"a pause of {argument[:20]!r} seconds: nothing is done")]
        seconds = min(seconds, MAX_PAUSE_S)
        self._orders.paused_until_s = max(self._orders.paused_until_s, now_s + seconds)
        return [
            Note(EventKind.REMEDY, f"nothing new starts for {seconds:g} s", {"remedy": "pause", "seconds": seconds})
        ]

    def _stop(self, reason: str, now_s: float) -> list[Action]:
        if self._orders.stop_reason:
            return []
        self._orders.stop_reason, self._orders.stop_by_s = reason or "stopped by an alert", now_s + STOP_GRACE_S
        text = f"the run ends when its busy workers are through: {self._orders.stop_reason}"
        return [Note(EventKind.REMEDY, text, {"remedy": "stop"})]
