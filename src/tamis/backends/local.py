"""The local executor: workers from a forking server, capped with RLIMIT_DATA, measured through /proc."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NoReturn

from tamis import errors, files, secrets
from tamis._dataclasses import dataclass
from tamis.backends import early
from tamis.backends.base import BaseExecutor
from tamis.backends.execution import load_report
from tamis.backends.fork_messages import (
    FROM_FORKER,
    Exited,
    Forked,
    ForkWorker,
    JobLoaded,
    LibrariesLoaded,
    LoadJob,
    LoadStages,
    NotLoaded,
)
from tamis.backends.forking import Branch, caller_context, launch
from tamis.backends.guard import Notice, WorkerGuard
from tamis.backends.inprocess import InlineWorkers
from tamis.backends.loading_cap import LoadingCap
from tamis.backends.waker import Waker
from tamis.backends.warm_process import Child, WarmProcess
from tamis.engine.channel import Channel
from tamis.engine.job import Job
from tamis.engine.messages import (
    WORKER_MESSAGES,
    Assign,
    Done,
    Exit,
    Failure,
    FailureKind,
    Order,
    Ready,
    SetUp,
    UnitMessage,
)
from tamis.engine.schema import EventKind
from tamis.engine.worker.config import WorkerConfig
from tamis.engine.workers_interface import Died, Event, Incident, Received, ServerMemory
from tamis.errors import UsageError, WorkerError
from tamis.memory import sampler
from tamis.memory.kill_tree import end_escaped, end_forks, end_tree, end_within
from tamis.sizes import format_size

_LOG_EVERY_S = 0.5
_SHORT_S = 0.1  # waits that memory does not end when it moves
_MAX_SERVER_STARTS = 20
_LOG_BYTES = 64 << 20
_LOG_KEPT_BYTES = 1 << 16


@dataclass
class _ForkedWorker:
    channel: Channel
    pid: int = 0
    is_ready: bool = False
    was_refused: bool = False  # something, during this unit


class ForkedWorkers:
    """Processes of one run. `payload` is the pickled job.

    `while_loading` is called once, while the forking server loads the job: time that would only be waited.
    """

    is_remote = False

    def __init__(
        self,
        payload: bytes,
        config: WorkerConfig,
        log: str,
        count_caller: bool,
        warm_process: WarmProcess | None = None,
        while_loading: Callable[[], object] | None = None,
    ) -> None:
        self._payload, self._config, self._log, self._count_caller = payload, config, log, count_caller
        self._warm_process, self._while_loading = warm_process, while_loading
        self._workers: dict[int, _ForkedWorker] = {}
        self._selector = selectors.DefaultSelector()
        self._waker = Waker()
        self.wake = self._waker.wake  # ends a `poll` early: called by the committing thread and the guard
        self._selector.register(self._waker, selectors.EVENT_READ, None)
        self._server: subprocess.Popen[bytes] | Branch | Child | None = None
        self._channel: Channel | None = None
        self._n_starts = 0
        self._sampler: sampler.Sampler | None = None
        self._guard: WorkerGuard | None = None
        self._log_seen_at = 0.0
        self.server = ServerMemory(0, 0, 0)

    # -- the forking server -------------------------------------------------------------------------------------------
    def open(self) -> None:
        """Start the forking server and wait until everything is imported."""
        if self._sampler is None or self._guard is None:
            self._sampler = sampler.begin(self._count_caller)
            self._sampler.limit(self._config.budget_bytes)
            self._guard = WorkerGuard(self._sampler, self.wake, (self._config.staged, self._config.scratch))
        self._n_starts += 1
        if self._n_starts > _MAX_SERVER_STARTS:
            raise WorkerError(f"the forking server died {_MAX_SERVER_STARTS} times; see {self._log}")
        ours, self._server = self._start_server() if self._warm_process is None else self._warm_process.spawn()
        self._channel = Channel(ours, FROM_FORKER)
        self._channel.send(LoadJob(caller_context(self._log), len(self._payload), self._config))
        with contextlib.suppress(OSError):
            ours.sendall(self._payload)
        if not self._channel.wait(0):  # the server is busy for 0.2 s
            self._use_waiting_time()
        answer = self._load_stages()
        if not isinstance(answer, JobLoaded):
            self._refuse(answer)
        parent_bytes = self._warm_process.own_bytes if self._warm_process is not None else 0
        self.server = ServerMemory(
            answer.own_bytes + parent_bytes, answer.anon_bytes, answer.peak_bytes, stages_bytes=answer.stages_bytes
        )
        fds = self._channel.fds
        self._guard.attach(fds.pop(0) if fds else None)
        self._selector.register(ours, selectors.EVENT_READ, self._channel)

    def _use_waiting_time(self) -> None:
        work, self._while_loading = self._while_loading, None
        if work is not None:
            work()

    def _load_stages(self) -> Any:
        """Have the stages of the job loaded inside the budget; return the answer of the server.

        BudgetError where they do not fit.
        """
        assert self._channel is not None
        assert self._server is not None
        assert self._sampler is not None
        answer = self._channel.receive()
        if not isinstance(answer, LibrariesLoaded):
            return answer
        cap = LoadingCap(self._sampler, self._server.pid, self._config.budget_bytes, self._log)
        try:
            self._channel.send(LoadStages(cap.begin()))
            self._use_waiting_time()
            answer = self._channel.receive()
        finally:
            cap.end()
        if not isinstance(answer, JobLoaded):
            cap.check(answer, self._server.wait() if answer is None else None)
        return answer

    def _start_server(self) -> tuple[socket.socket, subprocess.Popen[bytes] | Branch]:
        prepared = early.take("tamis.backends.forkserver")
        if prepared is not None:
            return prepared[1], prepared[0]
        with open(files.open_to_append(self._log), "ab") as log:
            server, ours = launch("tamis.backends.forkserver", log.fileno())
        return ours, server

    def _refuse(self, answer: Any) -> NoReturn:
        if not isinstance(answer, NotLoaded):
            raise WorkerError(
                f"the forking server died while starting; the end of {self._log} says why:\n{files.tail(self._log)}"
            )
        kind, _, text = answer.error.partition(": ")
        if isinstance(known := getattr(errors, kind, None), type) and issubclass(known, errors.UsageError):
            raise UsageError(secrets.hide(text))  # a stage rejects its own parameters
        raise UsageError(
            f"the stages cannot be loaded in a worker: {secrets.hide(answer.error)}\n"
            "Classes and functions from your own modules must be importable by workers (same folder or installed).\n"
            + secrets.hide(answer.trace)
        )

    # -- Workers ------------------------------------------------------------------------------------------------------
    def start(self, worker: int, segment: int, environment: Mapping[str, str] | None = None, node: int = 0) -> None:
        if self._channel is None or self._channel.closed:
            self._restart()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        process = _ForkedWorker(Channel(ours, WORKER_MESSAGES))
        self._workers[worker] = process
        self._selector.register(ours, selectors.EVENT_READ, worker)
        assert self._channel is not None
        self._channel.send_with(ForkWorker(worker, dict(environment or {})), [theirs.fileno()])
        theirs.close()

    def assign(self, worker: int, message: Assign, cap_bytes: int, ceiling_bytes: int) -> None:
        process = self._workers.get(worker)
        if process is None:
            return
        assert self._guard is not None
        process.was_refused = False
        self._guard.grant(worker, cap_bytes, ceiling_bytes)
        process.channel.send(message)

    def send(self, worker: int, message: Order) -> None:
        process = self._workers.get(worker)
        if process is not None:
            process.channel.send(message)

    def kill(self, worker: int) -> None:
        process = self._workers.get(worker)
        if process is None or not process.pid:
            return
        assert self._guard is not None
        if not self._guard.end(worker):
            end_tree(process.pid)

    def poll(self, timeout_s: float) -> list[Event]:
        assert self._guard is not None
        self._guard.wakes_on_moves = timeout_s > _SHORT_S
        ready = self._selector.select(timeout_s)
        events = [event for notice in self._guard.take_notices() for event in self._noticed(notice)]
        for key, _ in ready:
            if key.data is None:
                self._waker.drain()
            elif key.data is self._channel:
                events += self._from_server()
            else:
                events += self._from_worker(int(key.data))
        return events

    def measure(self) -> dict[int, tuple[int, dict[int, int]]]:
        """Return the bytes in use at the last sample: everything that counts, and each worker with its children."""
        assert self._sampler is not None
        assert self._guard is not None
        self._trim_log()
        workers = {process.pid: worker for worker, process in self._workers.items() if process.pid}
        uses, parents = self._sampler.uses, self._sampler.parents
        used: dict[int, int] = {}
        for pid, n_bytes in uses.items():
            above: int | None = pid
            while above is not None and above not in workers:
                above = parents.get(above)
            if above is not None:
                used[workers[above]] = used.get(workers[above], 0) + n_bytes
        return {0: (self._sampler.used_bytes, used | self._guard.stopped())}

    def pids(self) -> dict[int, int]:
        return {w: p.pid for w, p in self._workers.items() if p.pid}

    def close(self) -> None:
        for worker in list(self._workers):
            self.kill(worker)
        if self._channel is not None:
            self._channel.close()
        if self._server is not None:
            end_within(self._server, 2.0)
        if self._sampler is not None and self._guard is not None:
            self._guard.close()
            self._sampler.limit(None)
            sampler.end(self._count_caller)
            self._sampler = self._guard = None
        self._selector.close()
        for process in self._workers.values():
            process.channel.close()
        self._waker.close()

    # -- inside -------------------------------------------------------------------------------------------------------
    def _from_worker(self, worker: int) -> list[Event]:
        process = self._workers.get(worker)
        if process is None:
            return []
        events: list[Event] = []
        for message in process.channel.poll():
            if not isinstance(message, Ready):
                events.append(Received(worker, self._completed(worker, process, message)))
            elif not process.is_ready and self._guard is not None:  # later it might say anything
                process.pid, process.is_ready = process.pid or message.pid, True
                self._guard.adopt(worker, process.pid, message.vitals.data_bytes)
                events.append(Received(worker, message))
        if process.channel.garbled:  # whatever it is now, it is no worker any more
            self.kill(worker)
        if process.channel.closed:
            self._selector.unregister(process.channel.sock)  # its exit status comes from the server
        return events

    def _completed(self, worker: int, process: _ForkedWorker, news: UnitMessage) -> UnitMessage:
        """Add to a worker's news what the worker itself cannot know.

        That is: the memory taken by its children and mappings, whether they lacked memory, and how much was
        requested.
        """
        if not isinstance(news, Done | Failure | SetUp):
            return news
        assert self._guard is not None
        kind = news.kind if isinstance(news, Failure) else None
        if kind is FailureKind.ERROR and self._guard.is_starved(worker):
            kind = FailureKind.MEMORY
            process.channel.send(Exit())  # after a failed allocation of its own it would go by itself
        took = self._guard.account(worker)
        peak = max(took.peak_bytes, news.peak_bytes)
        if isinstance(news, SetUp):
            return replace(news, peak_bytes=peak, retained_bytes=news.retained_bytes + took.held_bytes)
        if isinstance(news, Done):
            return replace(news, peak_bytes=peak, outside_bytes=took.held_bytes)
        requested_bytes = own = news.requested_bytes  # exact, and all there is to say where the worker was alone
        if kind is FailureKind.MEMORY and took.requested_bytes:
            requested_bytes = max(own, took.requested_bytes) if took.peak_bytes else own or took.requested_bytes
        assert kind is not None
        return replace(news, kind=kind, peak_bytes=peak, outside_bytes=took.held_bytes, requested_bytes=requested_bytes)

    def _noticed(self, notice: Notice) -> list[Event]:
        """Return the events for a notice.

        A refusal is reported once per unit, before the failure that follows from it and that it explains.
        """
        process = self._workers.get(notice.worker)
        if process is None:
            return []
        if notice.kind == "unbounded":
            text = (
                "shared memory, mapped files and child processes of stages are watched only, a hundred times a "
                "second: this machine "
                "lets nothing bound them (no seccomp notifications), so they may go beyond the budget for a moment"
            )
            return [Incident(notice.worker, EventKind.UNBOUNDED, text)]
        if process.was_refused:
            return []
        process.was_refused = True
        request = f"{format_size(notice.n_bytes)} more than its cap" if notice.n_bytes else "another process"
        text = f"worker {notice.worker} wanted {request}: shared memory, mapped files and children count in its cap"
        return [Incident(notice.worker, EventKind.REFUSED, text, {"n_bytes": notice.n_bytes})]

    def _from_server(self) -> list[Event]:
        assert self._channel is not None
        events: list[Event] = []
        for message in self._channel.poll():
            process = self._workers.get(message.child) if isinstance(message, Forked | Exited) else None
            if process is None:
                continue
            if isinstance(message, Forked):
                process.pid = process.pid or message.pid
                if process.channel.garbled:
                    self.kill(message.child)
            else:
                events += self._worker_ended(message.child, message.code, message.stage)
        if self._channel.closed:
            self._selector.unregister(self._channel.sock)
            if self._server is not None:
                if self._channel.garbled:
                    self._server.kill()
                self._server.wait()
            end_escaped()
            if self._count_caller:
                end_forks(Branch.living)
            for worker in list(self._workers):
                events += self._worker_ended(worker, -signal.SIGKILL)
        return events

    def _worker_ended(self, worker: int, code: int, stage: str = "") -> list[Event]:
        """Return the last messages, then the death, with the stage in which it occurred."""
        events = self._from_worker(worker) if not self._workers[worker].channel.closed else []
        process = self._workers.pop(worker)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(process.channel.sock)
        process.channel.close()
        if self._guard is not None and (removed := self._guard.forget(worker, code)):
            text = f"{len(removed)} files that worker {worker} left in shared memory were removed"
            events.append(Incident(worker, EventKind.REMOVED, text, {"files": removed[:20]}))
        killer = -code if code < 0 else 0
        how = f"signal {signal.Signals(killer).name}" if killer else f"exit status {code}"
        if process.channel.garbled:  # which is why it was killed
            killer, how = 0, f"it sent an invalid message ({process.channel.garbled})"
        return [*events, Died(worker, how, killer, stage)]

    def _restart(self) -> None:
        if self._server is not None:
            with contextlib.suppress(ProcessLookupError):
                self._server.kill()
            self._server.wait()
        if self._channel is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(self._channel.sock)
            self._channel.close()
        self.open()

    def _trim_log(self) -> None:
        """Truncate the log to its last part, so that a stage that prints endlessly does not fill the disk."""
        if time.monotonic() - self._log_seen_at < _LOG_EVERY_S:
            return
        self._log_seen_at = time.monotonic()
        with contextlib.suppress(OSError):
            if os.path.getsize(self._log) > _LOG_BYTES:
                last = files.tail(self._log, _LOG_KEPT_BYTES).encode()
                os.truncate(self._log, 0)
                with open(files.open_to_append(self._log), "ab") as log:
                    log.write(last)


class LocalExecutor(BaseExecutor):
    """Worker processes on this machine, inside a memory budget. The default.

    With a `warm_process`, whose owner closes it, the forking server of each run is forked from that.
    """

    warm_process: WarmProcess | None = None

    def make_workers(self, job: Job, config: WorkerConfig, log_path: str, count_caller: bool) -> ForkedWorkers:
        if self.warm_process is not None:
            self.warm_process.ready(job.kernel_groups())
            return ForkedWorkers(job.pickled(), config, log_path, count_caller, self.warm_process)
        while_loading = load_report if self.report else None
        return ForkedWorkers(job.pickled(), config, log_path, count_caller, while_loading=while_loading)


class InProcessExecutor(BaseExecutor):
    """Everything in the calling process, one partition after the other: breakpoints work, the memory cap does not.

    What a stage raises reaches the caller of the run; with fail_fast=False the documents are quarantined, as with
    workers.
    """

    is_inline = True

    def make_workers(self, job: Job, config: WorkerConfig, log_path: str, count_caller: bool) -> InlineWorkers:
        return InlineWorkers(job, config)
