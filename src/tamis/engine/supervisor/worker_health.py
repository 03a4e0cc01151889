"""Worker health: what workers accumulate from unit to unit, and when one is replaced by a fresh process for it. Pure.

Joins what leakage.py knows of memory and handles.py of descriptors and threads with the room that a worker's cap
leaves.
"""

from __future__ import annotations

from tamis.engine.messages import Done, Vitals
from tamis.engine.schema import EventKind, LeakReport
from tamis.engine.supervisor.actions import Action, Note
from tamis.engine.supervisor.handles import Handles
from tamis.engine.supervisor.leakage import Leakage
from tamis.engine.supervisor.memory_arbiter import MemoryArbiter
from tamis.engine.supervisor.state import FEEDER, Worker
from tamis.engine.units import Unit
from tamis.sizes import format_size


class WorkerHealth:
    """The health of all workers of a run."""

    def __init__(self, arbiter: MemoryArbiter) -> None:
        self.leakage = Leakage()
        self.handles = Handles()
        self._arbiter = arbiter

    @property
    def leaks(self) -> list[LeakReport]:
        """Leaks found so far, of memory and of descriptors and threads."""
        return [*self.leakage.leaks, *self.handles.leaks]

    def before_unit(self, worker: Worker, unit: Unit) -> None:
        """Have a unit probed if its worker is suspected of a leak."""
        self.leakage.probe(worker.id, unit)

    def forget(self, worker: Worker, has_heir: bool = False) -> None:
        """Forget a worker that ends; with `has_heir`, its series of floors continues in the worker that replaces it."""
        self.leakage.forget_worker(worker.id, worker.segment, heir=has_heir)
        self.handles.forget_worker(worker.id)

    def after_unit(self, worker: Worker, report: Done) -> tuple[list[Action], Note | None]:
        """Record the state of a worker after a unit; return notes, and the reason for replacing it, if any.

        A worker is replaced if a leak is proven of it, if it runs out of descriptors or threads, if its next partition
        would not fit next to what it has accumulated, or if its address space has grown far beyond what it uses. A
        worker that only grows stays while partitions fit: replacing it would empty a cache that is about to be full.
        """
        vitals = report.vitals or Vitals()
        floor = vitals.level_bytes
        rise = worker.note_floor(floor)
        worker.vitals = vitals
        notes = self.leakage.after_unit(worker.id, worker.segment, report, worker.cap_bytes, rise)
        notes += self.handles.after_unit(worker, report)
        has_room = worker.segment == FEEDER or self._arbiter.has_room(worker, vitals)
        leaks = self.leakage.is_due(worker.id, worker.segment, worker.cap_bytes, rise, has_room)
        data = vitals.data_bytes + vitals.shared_bytes - self._arbiter.config.worker_bytes
        is_full = worker.is_full(floor) and not has_room
        is_sparse = worker.is_sparse(floor, data)
        used = worker.cap_bytes if is_sparse else self._arbiter.used_of_cap(worker, vitals)
        shortage = self.handles.why_replace(worker, report, used)
        if not leaks and not is_full and not shortage and not is_sparse:
            return notes, None
        rose = f"its memory floor rose to {format_size(floor)}"
        if leaks:
            reason = f": {rose}, which is as far as a leak may go"
        elif shortage:
            reason = f": {shortage}"
        elif is_full:
            growth = format_size(floor - worker.first_floor)
            reason = (
                f", not proven a leak: {rose}, by {growth}, which leaves less of its {format_size(worker.cap_bytes)} "
                "than a partition takes"
            )
        else:
            reason = (
                f", not proven a leak: it uses {format_size(floor)}, but its address space has grown to "
                f"{format_size(data)}, which its limit counts"
            )
        facts = {"worker": worker.id, "segment": worker.segment, "floor_bytes": floor, "proven": leaks}
        return notes, Note(EventKind.RECYCLE, f"worker {worker.id} is replaced{reason}", facts)
