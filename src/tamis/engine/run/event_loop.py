"""The one loop of a run: passes events to the supervisor, and carries out the actions that it returns.

Called by session.py. Workers are reached through `Workers` (workers_interface.py); nothing here knows of processes or
machines.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from tamis.engine import messages
from tamis.engine.messages import Done, Failure
from tamis.engine.monitor.monitor import Monitor
from tamis.engine.run.output.commit import Committer
from tamis.engine.samples import SampleLimits
from tamis.engine.schema import EventKind
from tamis.engine.supervisor import actions as do
from tamis.engine.supervisor.actions import Action
from tamis.engine.supervisor.events import MemoryMeasured, NodeJoined, NodeLost, StopRequested, Tick
from tamis.engine.supervisor.state import NodeSpec
from tamis.engine.supervisor.supervisor import Supervisor
from tamis.engine.units import Unit
from tamis.engine.workers_interface import Died, Event, Incident, NodeDown, NodeUp, Received, Workers
from tamis.memory.pace import has_moved
from tamis.stores.scratch_files import remove_object
from tamis.stores.urls import is_bucket

TICK_S = 0.04  # between two looks at everything
RESTING_TICK_S, _REST_AFTER_S = 0.5, 1.0  # ... and where nothing has happened for so long, and memory has not moved
_MEASURE_S = 0.01  # events that follow each other faster are not worth a look at every process
STOP_S = 10.0


class LastWork(Protocol):
    """Work for a worker that can only be known once everything else is committed."""

    def begin(self, supervisor: Supervisor) -> bool:
        """Hand the work to the supervisor; return False if there is none."""
        ...

    def end(self, supervisor: Supervisor) -> None:
        """Take the result, of which there is none if the work failed."""
        ...


class EventLoop:
    """One supervisor and its workers, from the first event to the last."""

    def __init__(
        self,
        supervisor: Supervisor,
        workers: Workers,
        committer: Committer,
        observe: Callable[[EventKind, dict[str, Any]], None],
        monitor: Monitor,
        admit: Callable[[NodeUp], NodeSpec | None],
    ) -> None:
        """Create the loop. `observe` records events; `admit` returns what a joining node may use (None: nothing)."""
        self.supervisor, self.workers, self.committer, self.observe = supervisor, workers, committer, observe
        self.monitor, self.admit = monitor, admit
        self.used_bytes = 0
        self._discarder = Discarder()
        self._measured_at = -1.0
        self._active_at, self._settled_bytes = float("inf"), 0  # when something happened last, and the use then

    def run(self, on_tick: Callable[[], None], last_work: LastWork | None = None) -> None:
        """Run until the supervisor has nothing left to do; then do the last work, while its workers live.

        KeyboardInterrupt passes through; the caller stops the run.
        """
        try:
            self._finish(on_tick)
            if last_work is not None and not self.supervisor.status.stopping and last_work.begin(self.supervisor):
                self._finish(on_tick)
                last_work.end(self.supervisor)
            self._dismiss()
        finally:
            self._discarder.close()

    def _finish(self, on_tick: Callable[[], None]) -> None:
        self.act(self.supervisor.handle(Tick(), time.monotonic()))
        while not self.supervisor.finished:
            self.run_once()
            on_tick()

    def _dismiss(self) -> None:
        """Have the workers exit.

        The next supervisor of this run (a later sampling step, the schema of the whole run) numbers its own workers
        from 1: these, left alive, would hold memory that is not counted.
        """
        alive = set(self.supervisor.pool.workers)
        for worker in alive:
            self.workers.send(worker, messages.Exit())
        deadline = time.monotonic() + STOP_S
        while alive and time.monotonic() < deadline + STOP_S:
            for event in self.workers.poll(TICK_S):
                if isinstance(event, Died):
                    alive.discard(event.worker)
                elif isinstance(event, NodeDown):
                    alive -= {w.id for w in self.supervisor.pool.workers.values() if w.node == event.node}
                    self.act(self._handle(event, time.monotonic()))
                elif isinstance(event, NodeUp):
                    self.act(self._handle(event, time.monotonic()))
            if time.monotonic() > deadline:
                for worker in alive:
                    self.workers.kill(worker)

    def _sample_limits(self, unit: Unit) -> SampleLimits | None:
        limits = self.committer.sample_limits
        return limits and replace(limits, share=self.supervisor.queue.cursor.share_of(unit.pieces))

    def stop(self, reason: str) -> None:
        """End early: workers are killed, commits under way are finished."""
        self.act(self.supervisor.handle(StopRequested(reason), time.monotonic()))
        deadline = time.monotonic() + STOP_S
        while not self.supervisor.finished and time.monotonic() < deadline:
            self.run_once()
        self._discarder.close()

    def run_once(self) -> None:
        """Pass events, then commits, then memory, then time to the supervisor; its actions are carried out at once."""
        rests = not self.workers.is_remote and time.monotonic() - self._active_at > _REST_AFTER_S
        events = self.workers.poll(RESTING_TICK_S if rests else TICK_S)
        for event in events:
            self.act(self._handle(event, time.monotonic()))
        n_commits = self._collect_commits()
        now = time.monotonic()
        if events or n_commits:
            self._active_at = now
        if now - self._measured_at >= _MEASURE_S:
            self._measure(now)
        self.act(self.supervisor.handle(Tick(), now))

    def _measure(self, now: float) -> None:
        self._measured_at = now
        for node, (used_bytes, per_worker) in self.workers.measure().items():
            self.act(self.supervisor.handle(MemoryMeasured(used_bytes, per_worker, node), now))
        self.used_bytes = max((node.used_bytes for node in self.supervisor.pool.nodes.values()), default=0)
        if has_moved(self._settled_bytes, self.used_bytes):
            self._active_at, self._settled_bytes = now, self.used_bytes

    def _collect_commits(self) -> int:
        """Report commits to the supervisor; return the number of partitions."""
        n_commits = 0
        while not self.committer.results.empty():
            result = self.committer.results.get()
            now = time.monotonic()
            if not result.error:
                self.observe(EventKind.COMMIT, {"partition": result.partition, "bytes": result.n_bytes})
                self.monitor.committed(result)
            self.act(self.supervisor.handle(result, now))
            n_commits += 1
        return n_commits

    def _handle(self, event: Event, now: float) -> list[Action]:
        """Return the supervisor's actions for an event, and notify the monitor of finished and split units."""
        worker = self.supervisor.pool.workers.get(getattr(event, "worker", -1))
        unit, fence = (worker.unit, worker.fence) if worker is not None else (None, -1)
        n_splits = self.supervisor.status.counters.splits
        actions = self._decide(event, now)
        if unit is not None:
            message = event.message if isinstance(event, Received) else None
            if isinstance(message, Done) and message.fence == fence:
                self.monitor.done(message, self.supervisor.queue.cursor.files.paths)
            elif self.supervisor.status.counters.splits > n_splits:
                self.monitor.split(unit)
        return actions

    def _decide(self, event: Event, now: float) -> list[Action]:
        match event:
            case Died(worker, how, signal, stage):
                self.observe(EventKind.DIED, {"worker": worker, "how": how, "signal": signal, "stage": stage})
                return self.supervisor.handle(event, now)
            case Incident(worker, kind, text, data):
                self.observe(kind, {"worker": worker, "text": text, **data})
                return []
            case Received(worker, message):
                if isinstance(message, Done):
                    self.observe(EventKind.UNIT, {"worker": worker, **message.facts()})
                elif isinstance(message, Failure):
                    self.observe(EventKind.FAILED, {"worker": worker, **message.facts()})
                return self.supervisor.handle(event, now)
            case NodeUp(_, name):
                spec = self.admit(event)
                if spec is None:
                    return []
                self.observe(
                    EventKind.NODE,
                    {"text": f"node {name} has joined: {spec.n_slots} workers", "node": name, "up": True},
                )
                return self.supervisor.handle(NodeJoined(spec), now)
            case NodeDown(node, name, reason):
                self.observe(EventKind.NODE, {"text": f"node {name} is gone: {reason}", "node": name, "up": False})
                return self.supervisor.handle(NodeLost(node), now)

    def act(self, actions: list[Action]) -> None:
        """Carry out what the supervisor decided."""
        for action in actions:
            match action:
                case do.StartWorker(worker, segment, environment, node):
                    self.workers.start(worker, segment, environment, node)
                case do.AssignUnit(worker, unit, fence, cap_bytes):
                    order = messages.Assign(unit, fence, self._sample_limits(unit))
                    self.workers.assign(worker, order, cap_bytes, self.supervisor.pool.ceiling(worker, cap_bytes))
                case do.RequestBlock(worker, block_bytes):
                    self.workers.send(worker, messages.More(block_bytes))
                case do.TrimWorker(worker):
                    self.workers.send(worker, messages.Trim())
                case do.StopWorker(worker):
                    self.workers.send(worker, messages.Exit())
                case do.KillWorker(worker, reason):
                    self.observe(EventKind.KILL, {"worker": worker, "why": str(reason)})
                    self.workers.kill(worker)
                case do.CommitPartition() | do.ReplaceFiles():
                    if isinstance(action, do.CommitPartition):
                        self.monitor.committing(action)
                    self.committer.submit(action)
                case do.DiscardFiles(paths):
                    for path in paths:
                        self._discarder.add(path)
                case do.Note(kind, text, data):
                    self.observe(kind, {"text": text, **data})


class Discarder:
    """Removes scratch files that are no longer needed, in threads: the loop cannot wait for a disk.

    A file system that is busy with gigabytes of output takes half a second over a file at times, and meanwhile no
    worker would be given a unit.
    """

    def __init__(self) -> None:
        self._local, self._remote = _Removal(os.unlink, "tamis-discard"), _Removal(remove_object, "tamis-remove")

    def add(self, path: str) -> None:
        """Queue a file for removal.

        What cannot be removed stays until the scratch of the run is removed as a whole.
        """
        (self._remote if is_bucket(path) else self._local).add(path)

    def close(self) -> None:
        """Wait until local files are removed: a resumed run may use their names again.

        A bucket is not waited for.
        """
        self._remote.close()
        self._local.close(wait=True)


class _Removal:
    """A thread, begun when it is first needed, that removes one thing after the other."""

    def __init__(self, remove: Callable[[str], object], name: str) -> None:
        self._remove, self._name = remove, name
        self._paths: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def add(self, path: str) -> None:
        self._paths.put(path)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()

    def close(self, wait: bool = False) -> None:
        """End the thread after it has removed everything queued."""
        if self._thread is not None:
            self._paths.put("")
            if wait:
                self._thread.join()
            self._thread = None

    def _work(self) -> None:
        while path := self._paths.get():
            with contextlib.suppress(OSError):
                self._remove(path)
