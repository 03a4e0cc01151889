"""What an alert may have the supervisor do: smaller partitions, another worker, a pause, an orderly end. Pure.

A remedy is a text: "shrink", "recycle:<worker>" (without a number: the largest), "pause:<seconds>", "stop:<why>". None of
them changes what is written: partitions and pauses never do, and a stopped run goes on with the same command.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tamis.engine.supervisor.actions import Action, Note
from tamis.engine.supervisor.state import FEEDER
from tamis.sizes import format_size

if TYPE_CHECKING:
    from tamis.engine.supervisor.supervisor import Supervisor

MIN_SHRUNK_BYTES = 1 << 20  # smaller partitions save hardly any memory and cost time
MAX_PAUSE_S = 3600.0
STOP_GRACE_S = 60.0  # for partitions under way when the run is to stop


class Remedies:
    """Those in force. The supervisor asks `holds_back` before it starts anything."""

    def __init__(self) -> None:
        self.paused_until_s = -math.inf
        self.ending = ""  # why the run ends once its busy workers are through
        self._ends_by_s = math.inf
        self._to_recycle: set[int] = set()

    def holds_back(self, now_s: float) -> bool:
        return bool(self.ending) or now_s < self.paused_until_s

    def apply(self, s: Supervisor, remedy: str, now_s: float) -> list[Action]:
        name, _, argument = remedy.partition(":")
        if s.stopping or s.fatal:
            return []
        if name == "shrink":
            return self._shrink(s)
        if name == "recycle":
            return self._recycle(s, argument)
        if name == "pause":
            return self._pause(argument, now_s)
        if name == "stop":
            return self._stop(argument, now_s)
        return [Note("remedy", f"unknown remedy {remedy[:100]!r}: nothing is done")]

    def due(self, s: Supervisor, now_s: float) -> list[Action]:
        """Return the ordered stop, once no worker is active any more or they have taken too long."""
        if not self.ending or s.stopping or (s.progressing and now_s < self._ends_by_s):
            return []
        is_done = s.cursor.exhausted and not any(s.queues) and not s.feeds and not s.busy
        return [] if is_done else s.stop(self.ending)  # what is done anyway is finished, not stopped

    def after_unit(self, s: Supervisor, worker_id: int) -> list[Action]:
        """Replace a worker that was to be replaced once it is done with its unit."""
        if worker_id not in self._to_recycle:
            return []
        self._to_recycle.discard(worker_id)
        worker = s.workers.get(worker_id)
        return self._replace(s, worker_id) if worker is not None and not worker.dying else []

    def _shrink(self, s: Supervisor) -> list[Action]:
        """Halve what partitions are now; the ceiling is the partition model's, so later steps of the run keep it."""
        n = max(s.grants.n_seats(bool(s.feeds)), len(s.workers), 1)
        cap = max([w.cap_bytes for w in s.workers.values()] + [s.grants.pool(n) // n])
        sizes = []
        for segment, model in enumerate(s.grants.predictors):
            size = s.grants.block_size(segment, cap, may_grow=False)
            model.max_size_bytes = min(model.max_size_bytes, max(size // 2, MIN_SHRUNK_BYTES))
            sizes.append(min(size, model.max_size_bytes))
        text = f"partitions are at most {', '.join(format_size(n) for n in sizes)} from now on"
        return [Note("remedy", text, {"remedy": "shrink", "sizes": sizes})]

    def _recycle(self, s: Supervisor, argument: str) -> list[Action]:
        living = {w.id: w for w in s.workers.values() if not w.dying and w.segment != FEEDER}
        if argument:
            chosen = living.get(int(argument)) if argument.isdecimal() else None
        else:
            chosen = max(living.values(), key=lambda w: (w.used_bytes, -w.id), default=None)
        if chosen is None:
            return [
                Note(
                    "remedy", f"worker {argument[:20]} is gone already" if argument else "there is no worker to replace"
                )
            ]
        if chosen.unit is None and chosen.ready:
            return self._replace(s, chosen.id)
        self._to_recycle = {i for i in self._to_recycle if i in s.workers} | {chosen.id}
        text = f"worker {chosen.id} ({format_size(chosen.used_bytes)}) is replaced after its partition"
        return [Note("remedy", text, {"remedy": "recycle", "worker": chosen.id})]

    def _replace(self, s: Supervisor, worker_id: int) -> list[Action]:
        worker = s.workers[worker_id]
        s.counters["recycled"] += 1
        text = f"worker {worker_id} is replaced: an alert asked for it ({format_size(worker.used_bytes)})"
        return [Note("recycle", text, {"remedy": "recycle", "worker": worker_id}), *s._retire(worker)]

    def _pause(self, argument: str, now_s: float) -> list[Action]:
        try:
            seconds = float(argument)
        except ValueError:
            seconds = math.nan
        if not 0 < seconds < math.inf:
            return [Note("remedy", f"a pause of {argument[:20]!r} seconds: nothing is done")]
        seconds = min(seconds, MAX_PAUSE_S)
        self.paused_until_s = max(self.paused_until_s, now_s + seconds)
        return [Note("remedy", f"nothing new starts for {seconds:g} s", {"remedy": "pause", "seconds": seconds})]

    def _stop(self, why: str, now_s: float) -> list[Action]:
        if self.ending:
            return []
        self.ending, self._ends_by_s = why or "stopped by an alert", now_s + STOP_GRACE_S
        text = f"the run ends when its busy workers are through: {self.ending}"
        return [Note("remedy", text, {"remedy": "stop"})]
