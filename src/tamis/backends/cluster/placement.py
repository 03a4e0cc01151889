"""The placer: a process next to the driver that has a cluster engine start agents on its nodes.

The driver never imports the engine: Ray, for example, ends its drivers when the cluster is gone. `main` reads a
`PlacementRequest`, loads the `Placement` it names, and runs it until the driver is gone or needs no more agents. To add
an engine, implement `Placement` here in this process and `Cluster` (session.py) in the driver; both know nothing of
jobs, budgets or documents.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import socket
import subprocess
import sys
import threading
import traceback
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any, Protocol

from tamis.backends.cluster.agent_spec import AgentSpec
from tamis.engine.wire import decode, encode, kinds

_SHUTDOWN_S = 8.0  # an engine's own shutdown may take minutes; whatever remains then ends with this process


@dataclass(frozen=True)
class PlacementRequest:
    """A request of the driver to the placer."""

    placement: str  # "module:class" of the Placement
    address: str  # of the cluster
    memory_bytes: int  # budget of each node, for the books of the engine
    options: dict[str, Any]  # for the placement alone
    host: str  # of the hub, as is its port
    port: int
    token: str

    def agent(self, n_cpus: int) -> AgentSpec:
        """Return the specification of an agent on a node with so many CPUs."""
        return AgentSpec(self.host, self.port, self.token, n_cpus)


@dataclass(frozen=True)
class PlacementReport:
    """Progress of a placement. None: as reported before."""

    text: str = ""  # what is being done
    n_nodes: int | None = None  # nodes that can be counted on
    gpus: list[float] | None = None  # GPUs that each node offers
    error: str = ""  # why there will be no agents


class Placement(Protocol):
    """Starts agents on one cluster engine. Constructed without arguments in the placer."""

    def connect(self, address: str) -> None:
        """Join the cluster."""

    def place(self, request: PlacementRequest, driver: DriverLink) -> None:
        """Keep one agent running on every node until `driver.ended` is set.

        Replaces agents that die, and adds one where a node joins.
        """

    def disconnect(self) -> None:
        """Leave the cluster; called also after an error."""


class DriverLink:
    """The placer's connection to the driver. `ended` is set when the driver is gone or needs no more agents."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._lines = sock, sock.makefile("rb")
        self._lock = threading.Lock()
        self.ended = threading.Event()

    def receive(self) -> PlacementRequest:
        """Read the request; from then on a thread waits for the end of the driver."""
        request: PlacementRequest = decode(self._lines.readline(), kinds(PlacementRequest))
        threading.Thread(target=self._wait, name="tamis-driver", daemon=True).start()
        return request

    def report(
        self, text: str = "", n_nodes: int | None = None, gpus: list[float] | None = None, error: str = ""
    ) -> None:
        """Send a `PlacementReport`."""
        with self._lock, contextlib.suppress(OSError):
            self._sock.sendall(encode(PlacementReport(text, n_nodes, gpus, error)) + b"\n")

    def _wait(self) -> None:
        with contextlib.suppress(OSError):
            self._lines.read()
        self.ended.set()
        threading.Timer(_SHUTDOWN_S, lambda: os._exit(0)).start()


class AgentProcess:
    """An agent started below this process, which is one of the engine's.

    Start it in the main thread: it dies with the thread that started it.
    """

    def __init__(self, spec: AgentSpec) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tamis.backends.cluster.agent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.was_ended = False  # by `end`
        assert self._process.stdin is not None
        described = {**asdict(spec), "parent": os.getpid(), "name": spec.name or socket.gethostname()}
        with self._process.stdin as pipe:
            pipe.write(json.dumps(described).encode() + b"\n")

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self, seconds: float | None = None) -> int | None:
        """Return the exit status of the agent; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    def end(self) -> None:
        self.was_ended = True
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def main(fd: int, parent: int) -> None:
    """Run the placer; `parent` is the driver."""
    # Here, because agents' parents import this module, and their memory counts in the budget of the node.
    from tamis.backends.forking import leave, name_process

    name_process("tamis-placer")
    gc.enable()
    driver = DriverLink(socket.socket(fileno=fd))
    request = driver.receive()
    module, _, attribute = request.placement.partition(":")
    placement: Placement | None = None
    try:
        driver.report(text=f"connecting to the cluster at {request.address}")
        placement = getattr(import_module(module), attribute)()
        placement.connect(request.address)
        placement.place(request, driver)
    except BaseException as exc:
        traceback.print_exc()
        driver.report(error=f"the cluster engine failed: {type(exc).__name__}: {str(exc)[:2000]}")
    with contextlib.suppress(BaseException):
        if placement is not None:
            placement.disconnect()
    sys.stderr.flush()
    leave(0)
