"""The workers of a run: who lives, what each is doing, who is ended when memory runs short. Pure.

The supervisor (supervisor.py) decides which work comes next; this is the part of its state that is about workers.
"""

from __future__ import annotations

from typing import Any

from tamis.engine.messages import Done, Vitals
from tamis.engine.supervisor.actions import Action, Assign, Kill, Note, Start, Stop, Trim
from tamis.engine.supervisor.devices import environment
from tamis.engine.supervisor.grants import Grants
from tamis.engine.supervisor.handles import Handles
from tamis.engine.supervisor.leakage import Leakage
from tamis.engine.supervisor.nodes import Node, remote, this_machine
from tamis.engine.supervisor.state import FEEDER, Config, NodeSpec, Worker
from tamis.engine.supervisor.units import Unit
from tamis.memory.predictor import Predictor
from tamis.memory.pressure import Pressure, WorkerUse, decide
from tamis.sizes import format_size


class Pool:
    def __init__(self, config: Config, predictors: list[Predictor]) -> None:
        self.config = config
        self.workers: dict[int, Worker] = {}
        self.grants = Grants(config, predictors, self.workers)
        self.nodes: dict[int, Node] = {}
        if config.nodes is None:
            self.nodes[0] = this_machine(config, self.grants, self.workers)
        for spec in config.nodes or ():
            self.nodes[spec.id] = remote(spec, config, self.grants)
        self.leakage = Leakage()
        self.handles = Handles()
        names = ("splits", "retries", "kills", "crashes", "memory_failures", "recycled", "committed", "late")
        self.counters = dict.fromkeys(names, 0)
        self._next_worker = self._next_fence = 1

    def measured(self, used_bytes: int, per_worker: dict[int, int], now_s: float, node_id: int = 0) -> list[Action]:
        """Process what the meter of a node measured; the pressure ladder responds to this, not to reservations."""
        node = self.nodes.get(node_id)
        if node is None:
            return []
        node.used_bytes = used_bytes
        uses = []
        actions: list[Action] = []
        for worker in node.workers.values():
            worker.used_bytes = per_worker.get(worker.id, worker.used_bytes)
            busy = worker.unit is not None
            last = worker.segment == len(self.config.fixed_workers) - 1
            uses.append(
                WorkerUse(
                    worker.id, worker.used_bytes, busy, now_s - worker.since_s if busy else 0.0, last, worker.dying
                )
            )
            if worker.cap_bytes and not worker.dying and worker.used_bytes > node.config.ceiling(worker.cap_bytes):
                actions += self._kill(worker, "over its cap")
        before, budget_bytes = node.pressure.level, node.config.budget_bytes
        node.pressure = node.pressure.after(used_bytes, budget_bytes)
        node.decision = decide(node.pressure.level, uses, budget_bytes, used_bytes)
        if node.pressure.level is not before:
            percent = 100 * used_bytes / budget_bytes
            where = f" on {node.name}" if node.name else ""
            actions.append(
                Note(
                    "pressure",
                    f"memory {node.pressure.level.name.lower()}{where}: {percent:.0f} % of the budget, {format_size(used_bytes)} of "
                    f"{format_size(budget_bytes)}",
                    {"level": int(node.pressure.level), "used": used_bytes},
                )
            )
            actions += [Trim(i) for i in node.decision.trim if self.workers[i].ready and self.workers[i].unit is None]
        for i in node.decision.kill:
            if not self.workers[i].dying:
                actions += self._kill(self.workers[i], "memory pressure")
        return actions

    @property
    def pressure(self) -> Pressure:
        """That of the node which has most of it."""
        return max((node.pressure for node in self.nodes.values()), key=lambda p: p.level, default=Pressure())

    def ceiling(self, worker_id: int, cap_bytes: int) -> int:
        """Return the use at which this worker is over its cap for certain."""
        worker = self.workers.get(worker_id)
        node = self.nodes.get(worker.node) if worker is not None else None
        return (node.config if node is not None else self.config).ceiling(cap_bytes)

    def _admit(self, spec: NodeSpec) -> Node:
        """Note a node that has come, for this supervisor and those after it in this run."""
        node = self.nodes[spec.id] = remote(spec, self.config, self.grants)
        self.config.nodes = [n for n in self.config.nodes or () if n.id != spec.id] + [spec]
        return node

    def _forget(self, node_id: int) -> Node | None:
        self.config.nodes = [n for n in self.config.nodes or () if n.id != node_id]
        return self.nodes.pop(node_id, None)

    def _drop(self, worker_id: int) -> Worker | None:
        """Remove a worker that is gone, from the books of its node too."""
        worker = self.workers.pop(worker_id, None)
        node = self.nodes.get(worker.node) if worker is not None else None
        if node is not None:
            node.workers.pop(worker_id, None)
            node.devices.free(worker_id)
        return worker

    @property
    def leaks(self) -> list[dict[str, Any]]:
        """Leaks found so far, of memory (leakage.py) and of descriptors and threads (handles.py)."""
        return self.leakage.leaks + self.handles.leaks

    @property
    def busy(self) -> bool:
        return any(w.unit is not None for w in self.workers.values())

    @property
    def progressing(self) -> bool:
        """Somebody works and will report; a feeder that waits for room will not."""
        return any(w.unit is not None and not w.held for w in self.workers.values())

    def _make_room(self, node: Node, segment: int) -> list[Action]:
        """End a worker that cannot go on: an idle one of another segment, or a feeder that waits for room in the queue."""
        if any(w.dying for w in node.workers.values()):
            return []
        spare = [w for w in node.workers.values() if w.segment != segment and ((w.unit is None and w.ready) or w.held)]
        if not node.devices.has_room(segment):
            spare = [w for w in spare if node.devices.share(w.segment)]
        return self._retire(spare[0]) if spare else []

    def _start(self, node: Node, segment: int) -> Start:
        worker = Worker(self._next_worker, segment, node=node.id)
        self._next_worker += 1
        self.workers[worker.id] = node.workers[worker.id] = worker
        devices = node.devices.take(worker.id, segment)
        told = environment(devices, node.devices.share(segment), node.devices.limit_bytes, self.config.gpu_overflow)
        return Start(worker.id, segment, dict(told), node.id)

    def _assign(self, worker: Worker, unit: Unit, cap_bytes: int, now_s: float) -> Assign:
        worker.unit, worker.fence, worker.cap_bytes, worker.since_s = unit, self._next_fence, cap_bytes, now_s
        worker.held = False
        self.leakage.probe(worker.id, unit)
        self._next_fence += 1
        return Assign(worker.id, unit, worker.fence, cap_bytes)

    def _recycle(self, worker: Worker, report: Done) -> list[Action]:
        """Replace a worker that a leak is proven of, that runs out of descriptors or threads, whose next partition would not fit next to what it has gathered, or whose
        address space has grown far beyond what it uses.

        A worker that only grows stays while partitions fit: replacing it would empty a cache that is about to be full.
        """
        vitals = report.vitals or Vitals()
        floor = vitals.level_bytes
        risen = worker.note_floor(floor)
        worker.vitals = vitals
        notes = self.leakage.after_unit(worker.id, worker.segment, report, worker.cap_bytes, risen)
        notes += self.handles.after_unit(worker, report)
        has_room = worker.segment == FEEDER or self.grants.has_room(worker, vitals)
        leaks = self.leakage.is_due(worker.id, worker.segment, worker.cap_bytes, risen, has_room)
        data = vitals.data_bytes + vitals.shared_bytes - self.config.worker_bytes
        is_full = worker.is_full(floor) and not has_room
        is_sparse = worker.is_sparse(floor, data)
        used = worker.cap_bytes if is_sparse else self.grants.used_of_cap(worker, vitals)
        short = self.handles.why_replace(worker, report, used)
        if not leaks and not is_full and not short and not is_sparse:
            return notes
        self.counters["recycled"] += 1
        self.leakage.gone(worker.id, worker.segment, heir=True)
        self.handles.gone(worker.id)
        rose = f"its memory floor rose to {format_size(floor)}"
        if leaks:
            text = f"worker {worker.id} is replaced: {rose}, which is as far as a leak may go"
        elif short:
            text = f"worker {worker.id} is replaced: {short}"
        elif is_full:
            text = (
                f"worker {worker.id} is replaced, not proven a leak: {rose}, by {format_size(floor - worker.first_floor)}, which leaves "
                f"less of its {format_size(worker.cap_bytes)} than a partition takes"
            )
        else:
            text = (
                f"worker {worker.id} is replaced, not proven a leak: it uses {format_size(floor)}, but its address space has "
                f"grown to {format_size(data)}, which its limit counts"
            )
        proven = {"worker": worker.id, "segment": worker.segment, "floor_bytes": floor, "proven": leaks}
        return [*notes, Note("recycle", text, proven), *self._retire(worker)]

    def _retire(self, worker: Worker) -> list[Action]:
        worker.why_killed = "replaced"
        return [Stop(worker.id)]

    def _kill(self, worker: Worker, why: str) -> list[Action]:
        if worker.dying:
            return []
        worker.why_killed = why
        others = self.nodes[worker.node].workers if worker.node in self.nodes else {}
        worker.was_alone = not any(w.unit is not None for w in others.values() if w is not worker)
        self.counters["kills"] += 1
        return [Kill(worker.id, why)]
