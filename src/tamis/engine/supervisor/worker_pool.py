"""The worker pool: the nodes of a run, the workers on them, and how workers are started, assigned, retired and killed.

Pure.

One machine is the usual case: a run without a cluster has one node, number 0, with the figures of its configuration. On
a cluster nodes join and leave during a run; what is learned on one (how much memory a partition takes) is known on all.

Does not cover which work a worker gets (dispatcher.py), nor when its growth calls for a fresh process
(worker_health.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace

from tamis._dataclasses import dataclass
from tamis.engine.schema import EventKind
from tamis.engine.supervisor.actions import Action, AssignUnit, KillWorker, Note, StartWorker, StopWorker, TrimWorker
from tamis.engine.supervisor.devices import Devices, environment
from tamis.engine.supervisor.memory_arbiter import MemoryArbiter
from tamis.engine.supervisor.state import Config, Counters, KillReason, NodeSpec, Worker
from tamis.engine.units import Unit
from tamis.memory.pressure import PressureGauge, PressureRules, WorkerUse, decide
from tamis.sizes import format_size


@dataclass
class PoolNode:
    """A machine with a budget, GPUs and a memory pressure, and the workers on it.

    `config` is that of the run with the figures of this machine.
    """

    id: int
    config: Config
    arbiter: MemoryArbiter
    devices: Devices
    workers: dict[int, Worker]
    name: str = ""
    used_bytes: int = 0
    n_units: int = 0  # done by its workers
    pressure: PressureGauge = field(default_factory=PressureGauge)
    decision: PressureRules = field(default_factory=PressureRules)

    @property
    def progressing(self) -> bool:
        """True if some worker here works and will report."""
        return any(w.progressing for w in self.workers.values())

    @property
    def n_busy(self) -> int:
        return sum(w.unit is not None for w in self.workers.values())

    def living(self, segment: int | None = None) -> list[Worker]:
        """Return the workers that are not about to end, of one segment or of all."""
        return [w for w in self.workers.values() if not w.dying and (segment is None or w.segment == segment)]


class WorkerPool:
    """The workers of a run on all of its nodes."""

    def __init__(self, config: Config, arbiter: MemoryArbiter, workers: dict[int, Worker], counters: Counters) -> None:
        """Create a pool. `workers` starts empty; it is the mapping that `arbiter` reads."""
        self.config, self.workers, self._arbiter, self._counters = config, workers, arbiter, counters
        self.nodes: dict[int, PoolNode] = {}
        if config.nodes is None:
            self.nodes[0] = PoolNode(0, config, arbiter, _devices_of(config), workers)
        for spec in config.nodes or ():
            self.nodes[spec.id] = self._node_of(spec)
        self._next_worker = self._next_fence = 1

    # -- state --------------------------------------------------------------------------------------------------------
    @property
    def busy(self) -> bool:
        return any(w.unit is not None for w in self.workers.values())

    @property
    def progressing(self) -> bool:
        """True if some worker works and will report; a feeder that waits for room in the queue will not."""
        return any(w.progressing for w in self.workers.values())

    @property
    def units(self) -> list[Unit]:
        """The units that workers have."""
        return [w.unit for w in self.workers.values() if w.unit is not None]

    @property
    def pressure(self) -> PressureGauge:
        """The memory pressure of the node that has most of it."""
        return max((node.pressure for node in self.nodes.values()), key=lambda p: p.level, default=PressureGauge())

    def node_of(self, worker: Worker | None) -> PoolNode | None:
        """Return the node that a worker is on; None if it is gone."""
        return self.nodes.get(worker.node) if worker is not None else None

    def config_of(self, worker: Worker | None) -> Config:
        """Return the configuration of a worker's node, or that of the run if the node is gone."""
        node = self.node_of(worker)
        return node.config if node is not None else self.config

    def ceiling(self, worker_id: int, cap_bytes: int) -> int:
        """Return the use at which this worker is over its cap for certain."""
        return self.config_of(self.workers.get(worker_id)).ceiling(cap_bytes)

    # -- nodes --------------------------------------------------------------------------------------------------------
    def add_node(self, spec: NodeSpec) -> PoolNode:
        """Add a node that has joined, for this supervisor and those after it in this run."""
        node = self.nodes[spec.id] = self._node_of(spec)
        self.config.nodes = [n for n in self.config.nodes or () if n.id != spec.id] + [spec]
        return node

    def remove_node(self, node_id: int) -> PoolNode | None:
        """Remove a node; its workers stay in the pool until each of them is removed."""
        self.config.nodes = [n for n in self.config.nodes or () if n.id != node_id]
        return self.nodes.pop(node_id, None)

    def _node_of(self, spec: NodeSpec) -> PoolNode:
        config = replace(
            self.config,
            budget_bytes=spec.budget_bytes,
            pool_bytes=spec.pool_bytes,
            worker_bytes=spec.worker_bytes,
            n_slots=spec.n_slots,
            shared_bytes=spec.shared_bytes,
            devices=list(spec.devices),
            fixed_workers=list(spec.fixed_workers),
            nodes=None,
        )
        workers: dict[int, Worker] = {}
        return PoolNode(
            spec.id, config, self._arbiter.for_node(config, workers), _devices_of(config), workers, spec.name
        )

    # -- workers ------------------------------------------------------------------------------------------------------
    def start(self, node: PoolNode, segment: int) -> StartWorker:
        """Start a worker of a segment on a node."""
        worker = Worker(self._next_worker, segment, node=node.id)
        self._next_worker += 1
        self.workers[worker.id] = node.workers[worker.id] = worker
        devices = node.devices.take(worker.id, segment)
        variables = environment(
            devices, node.devices.share(segment), node.devices.limit_bytes, self.config.gpu_overflow
        )
        return StartWorker(worker.id, segment, dict(variables), node.id)

    def assign(self, worker: Worker, unit: Unit, cap_bytes: int, now_s: float) -> AssignUnit:
        """Give a worker a unit, and its cap together with it."""
        worker.unit, worker.fence, worker.cap_bytes, worker.since_s = unit, self._next_fence, cap_bytes, now_s
        worker.is_blocked = False
        self._next_fence += 1
        return AssignUnit(worker.id, unit, worker.fence, cap_bytes)

    def retire(self, worker: Worker) -> list[Action]:
        """Let a worker end by itself."""
        worker.kill_reason = KillReason.REPLACED
        return [StopWorker(worker.id)]

    def retire_all(self, workers: Iterable[Worker]) -> list[Action]:
        return [action for worker in workers for action in self.retire(worker)]

    def kill(self, worker: Worker, reason: KillReason) -> list[Action]:
        """End a worker at once, unless it is ending already."""
        if worker.dying:
            return []
        worker.kill_reason = reason
        node = self.node_of(worker)
        others = node.workers if node is not None else {}
        worker.was_alone = not any(w.unit is not None for w in others.values() if w is not worker)
        self._counters.kills += 1
        return [KillWorker(worker.id, reason)]

    def remove(self, worker_id: int) -> Worker | None:
        """Remove a worker whose process is gone, and free its devices."""
        worker = self.workers.pop(worker_id, None)
        node = self.node_of(worker)
        if node is not None:
            node.workers.pop(worker_id, None)
            node.devices.free(worker_id)
        return worker

    def make_room(self, node: PoolNode, segment: int) -> list[Action]:
        """Retire a worker that cannot continue: an idle one of another segment, or a feeder waiting for the queue."""
        if any(w.dying for w in node.workers.values()):
            return []
        spare = [w for w in node.workers.values() if w.segment != segment and (w.is_idle or w.is_blocked)]
        if not node.devices.has_room(segment):
            spare = [w for w in spare if node.devices.share(w.segment)]
        return self.retire(spare[0]) if spare else []

    # -- limits -------------------------------------------------------------------------------------------------------
    def enforce_timeout(self, now_s: float) -> list[Action]:
        """Kill workers that have had their unit for too long; a feeder that waits for room is not late."""
        actions: list[Action] = []
        for worker in self.workers.values():
            if worker.progressing and now_s - worker.since_s > self.config.timeout_s:
                actions += self.kill(worker, KillReason.TIMEOUT)
        return actions

    def enforce_memory(self, node_id: int, used_bytes: int, per_worker: dict[int, int], now_s: float) -> list[Action]:
        """Apply what was measured on a node: caps, and the pressure ladder, which responds to use, not reservations."""
        node = self.nodes.get(node_id)
        if node is None:
            return []
        node.used_bytes = used_bytes
        uses = []
        actions: list[Action] = []
        for worker in node.workers.values():
            worker.used_bytes = per_worker.get(worker.id, worker.used_bytes)
            busy = worker.unit is not None
            is_last = worker.segment == len(self.config.fixed_workers) - 1
            busy_s = now_s - worker.since_s if busy else 0.0
            uses.append(WorkerUse(worker.id, worker.used_bytes, busy, busy_s, is_last, worker.dying))
            if worker.cap_bytes and not worker.dying and worker.used_bytes > node.config.ceiling(worker.cap_bytes):
                actions += self.kill(worker, KillReason.OVER_CAP)
        before, budget_bytes = node.pressure.level, node.config.budget_bytes
        node.pressure = node.pressure.after(used_bytes, budget_bytes)
        node.decision = decide(node.pressure.level, uses, budget_bytes, used_bytes)
        if node.pressure.level is not before:
            percent = 100 * used_bytes / budget_bytes
            location = f" on {node.name}" if node.name else ""
            actions.append(
                Note(
                    EventKind.PRESSURE,
                    f"memory {node.pressure.level.name.lower()}{location}: {percent:.0f} % of the budget, "
                    f"{format_size(used_bytes)} of {format_size(budget_bytes)}",
                    {"level": int(node.pressure.level), "used": used_bytes},
                )
            )
            actions += [TrimWorker(i) for i in node.decision.trim if self.workers[i].is_idle]
        for i in node.decision.kill:
            actions += self.kill(self.workers[i], KillReason.PRESSURE)
        return actions


def _devices_of(config: Config) -> Devices:
    return Devices(config.devices, config.gpus or (), config.gpu_bytes)
