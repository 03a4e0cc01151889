"""A single worker, in the calling process: for debugging (breakpoints work) and tests. No caps, no forking server.

Exceptions of stages reach the caller as they were raised, unless the run was started with fail_fast=False.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tamis import secrets
from tamis.engine.activity import in_words
from tamis.engine.job import Job
from tamis.engine.messages import ORDERS, Assign, Exit, Failure, FailureKind, Order, Ready, UnitMessage, Vitals, about
from tamis.engine.units import Unit
from tamis.engine.wire import decode, encode
from tamis.engine.worker.config import WorkerConfig
from tamis.engine.worker.node import WorkerMetadata, this_node
from tamis.engine.workers_interface import Died, Event, Received, ServerMemory
from tamis.stores import spool

if TYPE_CHECKING:
    from tamis.engine.worker.apply import StageFailure


class InlineWorkers:
    server = ServerMemory(0, 0, 0)
    is_remote = False

    def __init__(self, job: Job, config: WorkerConfig) -> None:
        self._job, self._config = job, config
        self._events: deque[Event] = deque()
        self._work: deque[tuple[int, Assign]] = deque()
        self._woken = threading.Event()

    def open(self) -> None:
        from tamis.backends.preload import keep_copies_in, with_inputs
        from tamis.engine.worker.process import UnitRunner

        keep_copies_in(self._config.scratch)
        self._runner = UnitRunner(self._job, with_inputs(self._config), inline=True)
        for stage in self._job.stages:
            stage.setup_on_node(this_node(), WorkerMetadata())

    def start(self, worker: int, segment: int, environment: Mapping[str, str] | None = None, node: int = 0) -> None:
        """Report the worker as ready.

        GPUs of this process are used as they are: variables come too late for libraries that are already loaded.
        """
        self._events.append(Received(worker, Ready(os.getpid(), Vitals())))

    def assign(self, worker: int, message: Assign, cap_bytes: int, ceiling_bytes: int) -> None:
        """Queue a unit, encoded and decoded, so that changes to it do not affect the supervisor's copy."""
        self._work.append((worker, decode(encode(message), ORDERS)))

    def send(self, worker: int, message: Order) -> None:
        if isinstance(message, Exit):
            self._events.append(Died(worker, "exit status 0"))

    def kill(self, worker: int) -> None:
        self._work = deque((w, m) for w, m in self._work if w != worker)
        self._events.append(Died(worker, "stopped", 9))

    def poll(self, timeout_s: float) -> list[Event]:
        """Return pending events; if there is nothing to do but wait for a commit, wait for it."""
        if not self._events and not self._work:
            self._woken.wait(timeout_s)
            self._woken.clear()
        elif not self._events:
            worker, message = self._work.popleft()

            def send(unit_message: UnitMessage) -> None:
                self._events.append(Received(worker, about(unit_message, message.unit.id, message.fence)))

            from tamis.engine.worker.apply import StageFailure

            failed: StageFailure | None = None
            try:
                report = self._runner.run(message.unit, message.fence, send, lambda: 0, message.samples)
            except StageFailure as exc:
                failed = exc
            if failed is not None:  # outside of the handler: the exception keeps the context that it was raised in
                raise _located(failed, message.unit)
            send(report)
            if isinstance(report, Failure) and report.kind is FailureKind.MEMORY:
                self._events.append(Died(worker, "memory"))
        events, self._events = list(self._events), deque()
        return events

    def pids(self) -> dict[int, int]:
        return {}

    def measure(self) -> dict[int, tuple[int, dict[int, int]]]:
        return {0: (0, {})}

    def wake(self) -> None:
        """End a `poll` that waits; called by the thread that commits."""
        self._woken.set()

    def close(self) -> None:
        if hasattr(self, "_runner"):
            spool.keep_copies(None)  # its folder is removed with the run, and this process continues
            self._runner.teardown()


def _located(failure: StageFailure, unit: Unit) -> BaseException:
    """Return what a stage raised, with a note that names the stage and the input that it was processing."""
    exc = failure.cause
    piece = unit.pieces[0]
    source = f", on documents of {piece.input_path} (from {piece.start} on)" if piece.input_path else ""
    exc.add_note(secrets.hide(f"in {in_words(failure.stage)}{source}"))
    return exc
