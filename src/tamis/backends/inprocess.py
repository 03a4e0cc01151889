"""A crew of one, in the calling process: for debugging (breakpoints work) and tests. No caps, no forking server."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from tamis.engine.crew import Event
from tamis.engine.job import Job
from tamis.engine.run.budget_shares import Server
from tamis.engine.supervisor.units import Unit
from tamis.engine.worker.node import WorkerMetadata, this_node
from tamis.engine.worker.workplace import Workplace


class InlineCrew:
    server = Server(0, 0, 0)

    def __init__(self, job: Job, place: dict[str, Any], log: str, count_caller: bool) -> None:
        self._job, self._place = job, place
        self._events: deque[Event] = deque()
        self._work: deque[tuple[int, dict[str, Any]]] = deque()

    def open(self) -> None:
        from tamis.backends.preload import expected_inputs
        from tamis.engine.worker.process import UnitRunner

        self._runner = UnitRunner(
            self._job, Workplace.from_dict(self._place["workplace"], expected_inputs(self._place["plan"]))
        )
        for stage in self._job.stages:
            stage.setup_on_node(this_node(), WorkerMetadata())

    def start(self, worker: int, segment: int, environment: Mapping[str, str] | None = None) -> None:
        """In this process GPUs are as they are: variables come too late for libraries that are there already."""
        self._events.append(Event("ready", worker, {}))

    def assign(self, worker: int, message: dict[str, Any], cap_bytes: int, ceiling_bytes: int) -> None:
        self._work.append((worker, message))

    def send(self, worker: int, message: dict[str, Any]) -> None:
        if message["type"] == "exit":
            self._events.append(Event("died", worker, {"how": "exit status 0", "signal": 0}))

    def kill(self, worker: int) -> None:
        self._work = deque((w, m) for w, m in self._work if w != worker)
        self._events.append(Event("died", worker, {"how": "stopped", "signal": 9}))

    def poll(self, timeout_s: float) -> list[Event]:
        if not self._events and self._work:
            worker, message = self._work.popleft()
            tag = {"unit": message["unit"], "fence": message["fence"]}
            unit = Unit.from_message(message)
            report = self._runner.run(
                unit,
                message["fence"],
                lambda news: self._events.append(Event("message", worker, {**news, **tag})),
                lambda: 0,
            )
            self._events.append(Event("message", worker, {**report, **tag}))
            if report["type"] == "failed" and report["kind"] == "memory":
                self._events.append(Event("died", worker, {"how": "memory", "signal": 0}))
        events, self._events = list(self._events), deque()
        return events

    def measure(self) -> tuple[int, dict[int, int]]:
        return 0, {}

    def wake(self) -> None:
        """Polling here never blocks."""

    def close(self) -> None:
        if hasattr(self, "_runner"):
            self._runner.teardown()
