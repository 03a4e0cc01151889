"""The one loop of a run: events from the crew and the committer go to the supervisor, its actions go back.

Workers are reached through a `Crew` (engine/crew.py). This file knows nothing of processes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tamis.engine.crew import Crew, Event
from tamis.engine.run.commit import Committer
from tamis.engine.supervisor.actions import (
    Action,
    Assign,
    Commit,
    Committed,
    Discard,
    Kill,
    More,
    Note,
    Replace,
    Start,
    Stop,
    Trim,
)
from tamis.engine.supervisor.supervisor import Supervisor
from tamis.engine.supervisor.units import Piece, Unit

TICK_S = 0.04
_MEASURE_S = 0.01  # events that follow each other faster are not worth a look at every process
STOP_S = 10.0


class Observer(Protocol):
    """Who wants to know more than events: see monitor.py."""

    def done(self, report: Mapping[str, Any]) -> None: ...

    def committing(self, action: Commit) -> None: ...

    def committed(self, result: Committed) -> None: ...

    def split(self, unit: Unit) -> None: ...


class Driver:
    def __init__(
        self,
        supervisor: Supervisor,
        crew: Crew,
        committer: Committer,
        observe: Callable[[str, dict[str, Any]], None],
        observer: Observer | None = None,
    ) -> None:
        self.supervisor, self.crew, self.committer, self.observe = supervisor, crew, committer, observe
        self.observer = observer
        self.used_bytes = 0
        self._measured_at = -1.0

    def run(self, on_tick: Callable[[float], None]) -> None:
        """Until the supervisor has nothing left to do. KeyboardInterrupt passes through; the caller stops the run."""
        self._act(self.supervisor.tick(time.monotonic()))
        while not self.supervisor.finished:
            self.step()
            on_tick(time.monotonic())
        self._dismiss()

    def _dismiss(self) -> None:
        """Let the workers end in peace. The next supervisor of this run (a later sampling step, the schema of the whole run)
        numbers its own from 1 and knows nothing of these: left alive they would hold memory that nobody counts."""
        left = set(self.supervisor.workers)
        for worker in left:
            self.crew.send(worker, {"type": "exit"})
        deadline = time.monotonic() + STOP_S
        while left and time.monotonic() < deadline + STOP_S:
            left -= {event.worker for event in self.crew.poll(TICK_S) if event.kind == "died"}
            if time.monotonic() > deadline:
                for worker in left:
                    self.crew.kill(worker)

    def stop(self, why: str) -> None:
        """End early: workers are killed, commits under way are finished."""
        self._act(self.supervisor.stop(why))
        deadline = time.monotonic() + STOP_S
        while not self.supervisor.finished and time.monotonic() < deadline:
            self.step()

    def step(self) -> None:
        for event in self.crew.poll(TICK_S):
            self._act(self._handle(event, time.monotonic()))
        self._collect_commits()
        now = time.monotonic()
        if now - self._measured_at >= _MEASURE_S:
            self._measure(now)
        self._act(self.supervisor.tick(now))

    def _measure(self, now: float) -> None:
        self._measured_at = now
        self.used_bytes, per_worker = self.crew.measure()
        self._act(self.supervisor.measured(self.used_bytes, per_worker, now))

    def _collect_commits(self) -> None:
        while not self.committer.results.empty():
            result = self.committer.results.get()
            now = time.monotonic()
            if result.error:
                self._act(self.supervisor.commit_failed(result.error))
            else:
                self.observe("commit", {"root": result.root, "bytes": result.n_bytes})
                if self.observer is not None:
                    self.observer.committed(result)
                self._act(self.supervisor.committed(result.root, result.covered, result.n_bytes, now))

    def act(self, actions: list[Action]) -> None:
        """Carry out what somebody else than an event made the supervisor decide (a remedy)."""
        self._act(actions)

    def _handle(self, event: Event, now: float) -> list[Action]:
        """What the supervisor wants done about an event; the observer hears of units that are done or cut in two."""
        worker = self.supervisor.workers.get(event.worker)
        unit, fence = (worker.unit, worker.fence) if worker is not None else (None, -1)
        n_splits = self.supervisor.counters["splits"]
        actions = self._decide(event, now)
        if self.observer is not None and unit is not None:
            if event.data.get("type") == "done" and event.data.get("fence") == fence:
                self.observer.done(event.data)
            elif self.supervisor.counters["splits"] > n_splits:
                self.observer.split(unit)
        return actions

    def _decide(self, event: Event, now: float) -> list[Action]:
        s, worker, data = self.supervisor, event.worker, event.data
        if event.kind == "died":
            self.observe("died", {"worker": worker, **data})
            return s.died(worker, data["how"], data["signal"], now, data.get("stage", ""))
        if event.kind in ("refused", "removed", "unbounded"):
            self.observe(event.kind, {"worker": worker, **data})
            return []
        if event.kind == "ready":
            return s.ready(worker, now, data.get("floor_bytes", 0), data.get("file_bytes", 0))
        kind, fence = data["type"], data.get("fence", -1)
        if kind == "read":
            s.read(worker, fence, data["n_records"], data["cut"], data["decoded_bytes"], data["largest_record"])
            return []
        if kind == "set_up":
            return s.set_up(worker, fence, data["kept_bytes"], data["peak_bytes"], now)
        if kind == "block":
            return s.block(worker, fence, Piece.from_list(data["piece"]), data["bytes"], data["compressed"], now)
        if kind == "done":
            self.observe("unit", {"worker": worker, **{k: data.get(k) for k in _UNIT_FACTS}})
            return s.done(worker, fence, data, now)
        if kind == "too_large":
            return s.too_large(worker, fence, data["info"], now)
        if kind == "failed":
            self.observe(
                "failed",
                {
                    "worker": worker,
                    **{
                        k: data.get(k) for k in ("unit", "kind", "stage", "error", "trace", "peak_bytes", "asked_bytes")
                    },
                },
            )
            return s.failed(worker, fence, data, now)
        return []

    def _act(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Start(worker, segment, environment):
                    self.crew.start(worker, segment, environment)
                case Assign(worker, unit, fence, cap_bytes):
                    self.crew.assign(
                        worker, unit.to_message(fence), cap_bytes, self.supervisor.config.ceiling(cap_bytes)
                    )
                case More(worker, block_bytes):
                    self.crew.send(worker, {"type": "more", "block_bytes": block_bytes})
                case Trim(worker):
                    self.crew.send(worker, {"type": "trim"})
                case Stop(worker):
                    self.crew.send(worker, {"type": "exit"})
                case Kill(worker, why):
                    self.observe("kill", {"worker": worker, "why": why})
                    self.crew.kill(worker)
                case Commit() | Replace():
                    if self.observer is not None and isinstance(action, Commit):
                        self.observer.committing(action)
                    self.committer.submit(action)
                case Discard(paths):
                    for path in paths:
                        _remove(path)
                case Note(kind, text, data):
                    self.observe(kind, {"text": text, **data})


_UNIT_FACTS = ("unit", "n_records", "decoded_bytes", "largest_record", "peak_bytes", "floor_bytes", "seconds", "cpu_s")


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
