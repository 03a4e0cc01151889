"""The agent on a node: runs local workers (backends/local.py) as the driver orders, inside this node's memory.

python -m tamis.backends.cluster.agent, with an `AgentSpec` (placement.py) as one line of JSON on stdin. It is started
by a process of the cluster engine, and ends with that process, with the driver, or when ordered. It decides nothing:
caps, kills and commits are the driver's; hard limits and guards are enforced here.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import queue
import socket
import sys
import threading
import time
from typing import Any

from tamis.backends.cluster import messages as m
from tamis.backends.cluster.agent_spec import AgentSpec
from tamis.backends.cluster.hub import configure_socket, prove
from tamis.backends.forking import die_with_parent, leave, name_process
from tamis.backends.local import ForkedWorkers
from tamis.engine.channel import Channel
from tamis.engine.messages import ORDERS
from tamis.engine.run.compiling import compile_missing
from tamis.engine.wire import decode, encode
from tamis.engine.workers_interface import Received
from tamis.errors import TamisError, UsageError
from tamis.memory import meter
from tamis.memory.budget import describe_limits, find_budget
from tamis.memory.gpu import device_names
from tamis.memory.sampler import Mark, record_peak

_POLL_S, _USE_S, _BEAT_S = 0.04, 0.05, 1.0
_SEEN_S = float(os.environ.get("TAMIS_SEEN_S", 20.0))  # a shared file system may show a new file late
_UNLIMITED_BYTES = 1 << 60


class Agent:
    """One connection to the driver, and at most one job at a time."""

    def __init__(self, sock: socket.socket, mark: Mark) -> None:
        self._mark = mark
        self.channel = Channel(sock, m.TO_AGENT)
        self._orders: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._arrived = threading.Event()
        self._workers: ForkedWorkers | None = None
        self._job_number = 0
        self._starter = StarterMemory()
        self._reported_s = 0.0
        self._last_use: Any = None

    def run(self) -> None:
        """Work until the driver is gone or sends Leave."""
        threading.Thread(target=self._listen, name="tamis-orders", daemon=True).start()
        try:
            while self._step():
                pass
        finally:
            self._close()

    def _listen(self) -> None:
        while (message := self.channel.receive()) is not None:
            self._orders.put(message)
            self._wake()
        self._orders.put(None)
        self._wake()

    def _wake(self) -> None:
        self._arrived.set()
        workers = self._workers
        if workers is not None:
            workers.wake()

    def _step(self) -> bool:
        if self._workers is None:
            self._arrived.wait(_BEAT_S)
        self._arrived.clear()
        while True:
            try:
                order = self._orders.get_nowait()
            except queue.Empty:
                break
            if order is None or isinstance(order, m.Leave):
                return False
            self._obey(order)
        if self._workers is not None:
            for event in self._workers.poll(_POLL_S):
                if isinstance(event, Received):
                    self.channel.send(m.WorkerNews(event.worker, encode(event.message).decode()))
                else:
                    self.channel.send(event)
        self._report_use()
        return not self.channel.closed

    def _obey(self, order: Any) -> None:
        if isinstance(order, m.OpenJob):
            self._close()
            self._open(order)
        elif isinstance(order, m.CloseJob):
            if order.job == self._job_number:
                self._close()
            self.channel.send(m.JobClosed(order.job))
        elif self._workers is not None:
            carry_out(self._workers, order)

    def _open(self, order: m.OpenJob) -> None:
        self._job_number = order.job
        try:
            missing = _wait_until_visible(order.visible)
            if missing:
                raise _Unseen(
                    f"{socket.gethostname()} does not see {missing[0]}: output, scratch and inputs must be stored "
                    "where all nodes see "
                    "them under the same path (a shared file system)"
                )
            sys.path[:] = order.context.sys_path
            with contextlib.suppress(OSError):
                os.chdir(order.context.cwd)
            compile_missing(order.kernel_groups, order.budget_bytes, True, None)
            payload, log = base64.b64decode(order.payload), order.context.log
            workers = ForkedWorkers(payload, order.config, log, count_caller=True)
            self._workers = workers
            workers.open()
        except (TamisError, OSError, _Unseen) as exc:
            self._close()
            kind = "usage" if isinstance(exc, UsageError) else "unseen" if isinstance(exc, _Unseen) else "worker"
            self.channel.send(m.JobRefused(order.job, kind, str(exc)[:20_000]))
            return
        self.channel.send(m.JobOpened(order.job, workers.server))

    def _close(self) -> None:
        if self._workers is not None:
            with contextlib.suppress(OSError, TamisError):
                self._workers.close()
            self._workers = None

    def _report_use(self) -> None:
        """Report memory in use: twenty times a second while it changes, once a second as a sign of life."""
        now_s = time.monotonic()
        if now_s - self._reported_s < _USE_S:
            return
        used, by_worker = self._workers.measure()[0] if self._workers is not None else (0, {})
        others = self._starter.bytes()
        use = used + others, sorted(by_worker.items())
        if use == self._last_use and now_s - self._reported_s < _BEAT_S:
            return
        self._reported_s, self._last_use = now_s, use
        peak = max(self._mark.pop_recent(), used) + others
        self.channel.send(m.MemoryUse(peak, sorted(by_worker.items())))


class StarterMemory:
    """The memory of the engine's process that started this one, measured at most once a second."""

    def __init__(self) -> None:
        self._measured_s, self._bytes = float("-inf"), 0

    def bytes(self) -> int:
        """Return its PSS."""
        if time.monotonic() - self._measured_s > 1.0:
            self._measured_s, self._bytes = time.monotonic(), meter.pss(os.getppid()) or 0
        return self._bytes


class _Unseen(Exception):
    """A file of the driver's is not visible here."""


def carry_out(workers: ForkedWorkers, order: Any) -> None:
    """Execute an order of the driver on one worker."""
    match order:
        case m.StartOrder(worker, segment, environment):
            workers.start(worker, segment, environment)
        case m.AssignOrder(worker, unit, cap_bytes, ceiling_bytes):
            workers.assign(worker, unit, cap_bytes, ceiling_bytes)
        case m.ForwardOrder(worker, encoded):
            workers.send(worker, decode(encoded.encode(), ORDERS))
        case m.KillOrder(worker):
            workers.kill(worker)


def _wait_until_visible(paths: list[str]) -> list[str]:
    """Return the paths that are not visible here after a while."""
    deadline_s = time.monotonic() + _SEEN_S
    while (missing := [p for p in paths if not os.path.exists(p)]) and time.monotonic() < deadline_s:
        time.sleep(0.2)
    return missing


def machine_id() -> str:
    """Return an id that is shared by all processes of this machine and by no other machine."""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
    return socket.gethostname()


def describe_node(spec: AgentSpec) -> m.Hello:
    """Describe this node to the driver."""
    facts = describe_limits()
    declared = spec.declared_bytes or _UNLIMITED_BYTES
    cgroups = [limit["bytes"] for limit in facts["cgroup_limits"]]
    return m.Hello(
        spec.name,
        machine_id(),
        spec.n_cpus or len(os.sched_getaffinity(0)),
        limit_bytes=min(facts["mem_total_bytes"] or _UNLIMITED_BYTES, declared, *cgroups),
        default_bytes=min(find_budget(None, {}).bytes, declared),
        others_bytes=StarterMemory().bytes(),
        devices=spec.devices or device_names(os.environ),
    )


def main() -> None:
    """Run the agent described on stdin."""
    spec = AgentSpec(**json.loads(sys.stdin.buffer.readline()))
    name_process("tamis-agent")
    die_with_parent(spec.parent)
    with contextlib.suppress(OSError):
        os.setpriority(
            os.PRIO_PROCESS, 0, 0
        )  # Ray's workers are niced; without the right to change that, this one stays so
    sock = socket.create_connection((spec.host, spec.port), timeout=20)
    if not prove(sock, spec.token, "agent", "driver"):
        raise SystemExit("the driver does not know this agent")
    configure_socket(sock)
    with record_peak(True) as mark:
        agent = Agent(sock, mark)
        agent.channel.send(describe_node(spec))
        agent.run()
    leave(0)


if __name__ == "__main__":
    main()
