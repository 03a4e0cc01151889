"""RemoteWorkers: the `Workers` of a run (engine/workers_interface.py) on all nodes of a session.

Nodes come and go while it is open: each agent that calls gets the job, and is a node once its forking server is up. An
agent that falls silent is cut off; the engine counts its workers as dead from then on, whatever they still do, because
only the driver commits.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import selectors
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tamis import files
from tamis.backends.cluster import messages as m
from tamis.backends.cluster.agent import machine_id
from tamis.backends.cluster.hub import Link
from tamis.backends.cluster.session import Session
from tamis.backends.forking import caller_context
from tamis.backends.waker import Waker
from tamis.engine.job import Job, gpus_needed
from tamis.engine.messages import WORKER_MESSAGES, Assign, Order
from tamis.engine.run.budget.shares import CALLER_BYTES, CALLER_LIBRARY_BYTES, GROWTH_BYTES
from tamis.engine.schema import EventKind
from tamis.engine.wire import Garbled, decode, encode
from tamis.engine.worker.config import WorkerConfig
from tamis.engine.workers_interface import Died, Event, Incident, NodeDown, NodeUp, Received, ServerMemory
from tamis.errors import PipelineError, UsageError, WorkerError
from tamis.memory import sampler
from tamis.memory.gpu import count_gpus

SILENT_S = 30.0  # an agent that sends nothing for so long is gone
START_S = 300.0  # for the first node to be ready
ALONE_S = 300.0  # without any node, later
REPORT_S = (8.0, 30.0, 90.0, 180.0)  # without any node: when that is reported, with advice
CLOSE_S = 10.0
_GATHER_S = 2.0  # others may be ready a moment after the first
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RemoteJob:
    """A job as agents get it, and what its stages need on a node."""

    payload: bytes  # pickled
    kernel_groups: list[str] = field(default_factory=list)
    gpus_needed: dict[str, float] = field(default_factory=dict)  # by one worker of each stage

    @classmethod
    def of(cls, job: Job) -> RemoteJob:
        gpus = {stage.name: gpus_needed(stage) for stage in job.stages}
        return cls(job.pickled(), job.kernel_groups(), gpus)


@dataclass
class _RemoteNode:
    link: Link
    opened: m.JobOpened | None = None
    workers: set[int] = field(default_factory=set)
    use: m.MemoryUse | None = None
    is_fresh: bool = False  # `use` has not been passed on yet
    peak_bytes: int = 0

    @property
    def is_up(self) -> bool:
        return self.opened is not None


class RemoteWorkers:
    """Workers of one run on the nodes of a session. Logs of nodes are stored next to `log`."""

    is_remote = True

    def __init__(
        self, session: Session, job: RemoteJob, config: WorkerConfig, log: str, count_caller: bool, budget_bytes: int
    ) -> None:
        self._session, self._job, self._config, self._log = session, job, config, log
        self._count_caller, self._budget_bytes = count_caller, budget_bytes
        self._id = session.new_job()
        self._nodes: dict[int, _RemoteNode] = {}
        self._node_of: dict[int, int] = {}  # worker -> node
        self._pending: list[Event] = []
        self._refused: list[m.JobRefused] = []
        self._selector = selectors.DefaultSelector()
        self._waker = Waker()
        self._selector.register(self._waker, selectors.EVENT_READ, None)
        self._machine = machine_id()
        self._sampler: sampler.Sampler | None = None
        self._alone_since_s = 0.0
        self._n_reported = 0
        self._visible: list[str] = []
        self.server = ServerMemory(0, 0, 0)

    # -- lifecycle ----------------------------------------------------------------------------------------------------
    def open(self) -> None:
        """Have the session running, give every agent the job, and wait until the first node is ready."""
        self._sampler = sampler.begin(self._count_caller)
        self._refuse_missing_gpus([float(count_gpus())] if self._session.cluster.is_own else [])
        self._write_marks()
        self._session.start(self.wake)
        for link in self._session.links():
            self._offer(link)
        began_s, first_s = time.monotonic(), 0.0
        while True:
            self._pending += self._pump(0.2)
            self._refuse_missing_gpus(self._session.gpus)
            now_s = time.monotonic()
            if any(node.is_up for node in self._nodes.values()):
                first_s = first_s or now_s
                if self._are_all_up() or now_s - first_s > _GATHER_S:
                    break
            else:
                self._check_opening(now_s - began_s)
        self.server = self._server_of(next(node for node in self._nodes.values() if node.is_up))
        self._alone_since_s, self._n_reported = 0.0, 0

    def _are_all_up(self) -> bool:
        return all(n.is_up for n in self._nodes.values()) and len(self._nodes) >= self._session.n_expected

    def _check_opening(self, waited_s: float) -> None:
        """Raise an error if all nodes refused the job, the placer failed, or no node is ready in time."""
        if self._refused and len(self._refused) >= max(1, self._session.n_expected):
            refused = self._refused[0]
            raise (UsageError if refused.kind in ("usage", "unseen") else WorkerError)(refused.error)
        if self._session.error:
            raise WorkerError(self._session.error)
        if waited_s > START_S:
            raise WorkerError(
                f"no node of the cluster was ready after {START_S:.0f} s: {self._session.progress_text()}"
            )
        self._report_alone(waited_s, START_S)

    def _refuse_missing_gpus(self, offered: Sequence[float]) -> None:
        """Raise PipelineError if a stage needs more GPUs than any node offers.

        `offered` is empty while that is not known.
        """
        if not offered:
            return
        for stage, needed in self._job.gpus_needed.items():
            if needed > max(offered):
                raise PipelineError(
                    f"stage {stage!r} asks for {needed:g} GPU, the nodes of this cluster offer {max(offered):g} at "
                    "most; change its resources, or declare the GPUs of the nodes to the cluster (ray start --num-gpus)"
                )

    def close(self) -> None:
        for node in self._nodes.values():
            node.link.channel.send(m.CloseJob(self._id))
        deadline_s = time.monotonic() + CLOSE_S
        while self._nodes and time.monotonic() < deadline_s:
            self._pump(0.1)
        for node in list(self._nodes.values()):  # a node that does not answer gets no other job
            node.link.channel.close()
            self._session.drop(node.link)
        self._nodes.clear()
        if self._sampler is not None:
            sampler.end(self._count_caller)
            self._sampler = None
        self._session.idle()
        self._selector.close()
        self._waker.close()
        for path in self._visible:
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _write_marks(self) -> None:
        """Write files that a node must see to take part: in the run directory, and where scratch files go."""
        for folder in {os.path.dirname(self._log), self._config.staged, self._config.scratch}:
            path = os.path.join(folder, f".seen-by-nodes-{self._id}-{os.getpid()}")
            with open(files.open_to_append(path), "ab"):
                self._visible.append(path)

    # -- Workers ------------------------------------------------------------------------------------------------------
    def start(self, worker: int, segment: int, environment: Mapping[str, str] | None = None, node: int = 0) -> None:
        remote = self._nodes.get(node)
        if remote is None or not remote.is_up:
            self._pending.append(Died(worker, "its node is gone", 9))
            return
        remote.workers.add(worker)
        self._node_of[worker] = node
        remote.link.channel.send(m.StartOrder(worker, segment, dict(environment or {})))

    def assign(self, worker: int, message: Assign, cap_bytes: int, ceiling_bytes: int) -> None:
        self._send(worker, m.AssignOrder(worker, message, cap_bytes, ceiling_bytes))

    def send(self, worker: int, message: Order) -> None:
        self._send(worker, m.ForwardOrder(worker, encode(message).decode()))

    def kill(self, worker: int) -> None:
        self._send(worker, m.KillOrder(worker))

    def poll(self, timeout_s: float) -> list[Event]:
        events, self._pending = self._pending, []
        events += self._pump(0.0 if events else timeout_s)
        self._check_alone()
        return events

    def wake(self) -> None:
        self._waker.wake()

    def pids(self) -> dict[int, int]:
        return {}

    def measure(self) -> dict[int, tuple[int, dict[int, int]]]:
        """Return the memory in use on each node that has reported since the last call.

        Per node: bytes in use there (the peak since the last call), and bytes by worker.
        """
        measured = {}
        driver = self._driver_bytes()
        for number, node in self._nodes.items():
            if node.use is not None and node.is_fresh and node.is_up:
                node.is_fresh = False
                extra = driver if node.link.hello.machine == self._machine else 0
                measured[number] = node.peak_bytes + extra, dict(node.use.workers)
                node.peak_bytes = 0
        return measured

    # -- inside -------------------------------------------------------------------------------------------------------
    def _send(self, worker: int, message: Any) -> None:
        node = self._nodes.get(self._node_of.get(worker, -1))
        if node is not None:
            node.link.channel.send(message)

    def _offer(self, link: Link) -> None:
        """Give an agent the job; it answers JobOpened or JobRefused."""
        stem, suffix = os.path.splitext(self._log)
        caller = caller_context(f"{stem}-{_plain(link.hello.name)}{suffix}")
        payload = base64.b64encode(self._job.payload).decode()
        order = m.OpenJob(
            self._id, payload, self._config, caller, self._visible, self._job.kernel_groups, self._budget_bytes
        )
        if link.channel.send(order):
            self._nodes[link.node] = _RemoteNode(link)
            self._selector.register(link.channel.sock, selectors.EVENT_READ, link.node)
        else:
            self._session.drop(link)

    def _pump(self, timeout_s: float) -> list[Event]:
        events: list[Event] = []
        for key, _ in self._selector.select(timeout_s):
            if key.data is None:
                self._waker.drain()
            elif key.data in self._nodes:
                events += self._hear(key.data)
        for link in self._session.take_arrivals():
            self._offer(link)
        now_s = time.monotonic()
        for number, node in list(self._nodes.items()):
            if node.link.channel.closed:
                events += self._lost(number, node.link.channel.garbled or "its connection ended")
            elif now_s - node.link.heard_s > SILENT_S and node.is_up:
                events += self._lost(number, f"it sent nothing for {SILENT_S:.0f} s")
        return events

    def _hear(self, number: int) -> list[Event]:
        node = self._nodes[number]
        events: list[Event] = []
        for message in node.link.channel.poll():
            node.link.heard_s = time.monotonic()
            match message:
                case m.WorkerNews(worker, news):
                    try:
                        events.append(Received(worker, decode(news.encode(), WORKER_MESSAGES)))
                    except Garbled as exc:
                        events += self._lost(number, f"it sent an invalid message ({exc})")
                        return events
                case Died(worker):
                    node.workers.discard(worker)
                    self._node_of.pop(worker, None)
                    events.append(message)
                case Incident():
                    events.append(message)
                case m.MemoryUse():
                    node.use, node.is_fresh = message, True
                    node.peak_bytes = max(node.peak_bytes, message.peak_bytes)
                case m.JobOpened(job) if job == self._id:
                    node.opened = message
                    events.append(self._node_up(number, node))
                case m.JobRefused(job) if job == self._id:
                    self._refused.append(message)
                    events.append(
                        Incident(0, EventKind.NODE, f"node {node.link.hello.name} cannot take part: {message.error}")
                    )
                    self._release(number)
                case m.JobClosed(job) if job == self._id:
                    self._release(number)
        return events

    def _server_of(self, node: _RemoteNode) -> ServerMemory:
        opened, hello = node.opened, node.link.hello
        assert opened is not None
        others = max(hello.others_bytes, 0) + GROWTH_BYTES
        if hello.machine == self._machine:  # the driver and its placer are on this node, too
            others += max(self._driver_bytes(), CALLER_BYTES + CALLER_LIBRARY_BYTES) + GROWTH_BYTES
        return opened.server._replace(n_cores=hello.n_cpus, others_bytes=others + CALLER_BYTES // 2)

    def _node_up(self, number: int, node: _RemoteNode) -> NodeUp:
        hello = node.link.hello
        return NodeUp(
            number, hello.name, self._server_of(node), hello.limit_bytes, hello.default_bytes, tuple(hello.devices)
        )

    def _driver_bytes(self) -> int:
        return self._sampler.used_bytes if self._sampler is not None else 0

    def _release(self, number: int) -> None:
        """Release a node that has no workers of this job any more; its agent stays for the next job."""
        node = self._nodes.pop(number)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(node.link.channel.sock)

    def _lost(self, number: int, why: str) -> list[Event]:
        node = self._nodes[number]
        self._release(number)
        node.link.channel.close()
        self._session.drop(node.link)
        for worker in node.workers:
            self._node_of.pop(worker, None)
        return [NodeDown(number, node.link.hello.name, why)] if node.is_up else []

    def _check_alone(self) -> None:
        """End a run without nodes if no node arrives in time."""
        if any(n.is_up for n in self._nodes.values()):
            self._alone_since_s, self._n_reported = 0.0, 0
            return
        self._alone_since_s = self._alone_since_s or time.monotonic()
        alone_s = time.monotonic() - self._alone_since_s
        if self._session.error or alone_s > ALONE_S:
            why = self._session.error or f"no node for {ALONE_S:.0f} s: {self._session.progress_text()}"
            raise WorkerError(f"{why}. Everything committed so far is kept: run the same command again to resume")
        self._report_alone(alone_s, ALONE_S)

    def _report_alone(self, alone_s: float, limit_s: float) -> None:
        """Report that the run waits for a node, and what to do, some times with growing intervals."""
        if self._n_reported < len(REPORT_S) and alone_s >= REPORT_S[self._n_reported]:
            self._n_reported += 1
            text = (
                f"no node of the cluster for {alone_s:.0f} s; the run ends after {limit_s:.0f} s. "
                f"{self._session.advice()}"
            )
            _log.warning("%s", text)
            self._pending.append(Incident(0, EventKind.NODE, text))


def _plain(name: str) -> str:
    """Return the name of a node in a form that is valid in a file name.

    >>> _plain("10.0.0.1 (gpu)/a")
    '10.0.0.1--gpu--a'
    """
    return "".join(c if c.isalnum() or c in ".-" else "-" for c in name)[:80]
