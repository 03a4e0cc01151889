"""The agent on a node: runs local workers (backends/local.py) as the driver says, inside this node's memory.

python -m tamis.backends.cluster.agent, with one line of JSON on stdin: host, port and token of the hub, a name, CPUs, GPUs and declared memory. It is started by
an actor or a stage in a process of Ray's, and ends with that process, with the driver, or when told. It decides nothing: caps, kills and commits
are the driver's; what hard limits and guards enforce is enforced here.
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
from tamis.backends.cluster.handshake import prove
from tamis.backends.cluster.hub import make_lively
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
from tamis.memory.sampler import Mark, watching

_POLL_S, _USE_S, _BEAT_S = 0.04, 0.05, 1.0
_SEEN_S = float(os.environ.get("TAMIS_SEEN_S", 20.0))  # a shared file system may show a new file late


class Agent:
    """One connection to the driver, and at most one job at a time."""

    def __init__(self, sock: socket.socket, mark: Mark) -> None:
        self._sock, self._mark = sock, mark
        self._channel = Channel(sock, m.TO_AGENT)
        self._orders: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._workers: ForkedWorkers | None = None
        self._job_number = 0
        self._told_s = 0.0
        self._last: Any = None
        self._arrived = threading.Event()

    def run(self) -> None:
        """Until the driver is gone or says Leave."""
        threading.Thread(target=self._listen, name="tamis-orders", daemon=True).start()
        try:
            while self._step():
                pass
        finally:
            self._close()

    def _listen(self) -> None:
        while (message := self._channel.receive()) is not None:
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
                said = m.Told(event.worker, encode(event.message).decode()) if isinstance(event, Received) else event
                self._channel.send(said)
        self._tell_use()
        return not self._channel.closed

    def _obey(self, order: Any) -> None:
        if isinstance(order, m.Open):
            self._close()
            self._open(order)
        elif isinstance(order, m.Close):
            if order.job == self._job_number:
                self._close()
            self._channel.send(m.Closed(order.job))
        elif self._workers is not None:
            carry_out(self._workers, order)

    def _open(self, order: m.Open) -> None:
        self._job_number = order.job
        try:
            missing = _unseen(order.visible)
            if missing:
                raise _Unseen(
                    f"{socket.gethostname()} does not see {missing[0]}: output, scratch and inputs must lie where all nodes see them "
                    "under the same path (a shared file system)"
                )
            sys.path[:] = order.surroundings.sys_path
            with contextlib.suppress(OSError):
                os.chdir(order.surroundings.cwd)
            compile_missing(order.kernel_groups, order.budget_bytes, True, None)
            payload, log = base64.b64decode(order.payload), order.surroundings.log
            workers = ForkedWorkers(payload, order.config, log, count_caller=True)
            self._workers = workers
            workers.open()
        except (TamisError, OSError, _Unseen) as exc:
            self._close()
            kind = "usage" if isinstance(exc, UsageError) else "unseen" if isinstance(exc, _Unseen) else "worker"
            self._channel.send(m.Refused(order.job, kind, str(exc)[:20_000]))
            return
        self._channel.send(m.Opened(order.job, workers.server))

    def _close(self) -> None:
        if self._workers is not None:
            with contextlib.suppress(OSError, TamisError):
                self._workers.close()
            self._workers = None

    def _tell_use(self) -> None:
        """Twenty times a second while something changes, once a second as a sign of life."""
        now_s = time.monotonic()
        if now_s - self._told_s < _USE_S:
            return
        used, by_worker = self._workers.measure()[0] if self._workers is not None else (0, {})
        others = _others_bytes()
        facts = used + others, sorted(by_worker.items())
        if facts == self._last and now_s - self._told_s < _BEAT_S:
            return
        self._told_s, self._last = now_s, facts
        peak = max(self._mark.take_recent(), used) + others
        self._channel.send(m.Use(peak, sorted(by_worker.items())))


class _Unseen(Exception):
    """A file of the driver's is not visible here."""


def carry_out(workers: ForkedWorkers, order: Any) -> None:
    """Execute an order of the driver on one worker."""
    match order:
        case m.Start(worker, segment, environment):
            workers.start(worker, segment, environment)
        case m.Give(worker, unit, cap_bytes, ceiling_bytes):
            workers.assign(worker, unit, cap_bytes, ceiling_bytes)
        case m.Tell(worker, told):
            workers.send(worker, decode(told.encode(), ORDERS))
        case m.Kill(worker):
            workers.kill(worker)


def _unseen(paths: list[str]) -> list[str]:
    deadline_s = time.monotonic() + _SEEN_S
    while (missing := [p for p in paths if not os.path.exists(p)]) and time.monotonic() < deadline_s:
        time.sleep(0.2)
    return missing


_others: tuple[float, int] = (-1.0, 0)


def _others_bytes() -> int:
    """Return the PSS of the Ray process that started this one, measured at most once a second."""
    global _others
    if time.monotonic() - _others[0] > 1.0:
        _others = time.monotonic(), meter.pss(os.getppid()) or 0
    return _others[1]


def machine_id() -> str:
    """Return an id that is shared by all processes of this machine and by no other machine."""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
    return socket.gethostname()


def hello(name: str, n_cpus: int, devices: list[str], declared_bytes: int = 0) -> m.Hello:
    """Describe this node. `declared_bytes`: the memory that Ray declares for it; 0: not known."""
    facts = describe_limits()
    declared = declared_bytes or 1 << 60
    limits = [facts["mem_total_bytes"] or 1 << 60, declared, *(limit["bytes"] for limit in facts["cgroup_limits"])]
    return m.Hello(
        name, machine_id(), n_cpus or len(os.sched_getaffinity(0)), min(limits), min(find_budget(None, {}).bytes, declared), _others_bytes(),
        devices or device_names(os.environ),
    )  # fmt: skip


def main() -> None:
    about = json.loads(sys.stdin.buffer.readline())
    name_process("tamis-agent")
    die_with_parent(int(about["parent"]))
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 0)  # Ray's workers are niced; whoever may not change that stays so
    sock = socket.create_connection((about["host"], about["port"]), timeout=20)
    if not prove(sock, about["token"], "agent", "driver"):
        raise SystemExit("the driver does not know this agent")
    make_lively(sock)
    with watching(True) as mark:
        agent = Agent(sock, mark)
        n_cpus, declared = int(about.get("n_cpus", 0)), int(about.get("declared_bytes", 0))
        agent._channel.send(hello(str(about["name"]), n_cpus, list(about.get("devices", [])), declared))
        agent.run()
    leave(0)


if __name__ == "__main__":
    main()
