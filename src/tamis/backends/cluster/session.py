"""A cluster while it is used: the hub that agents call, and the placer that has them started.

For several runs, one after the other.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, Protocol

from tamis.backends.cluster.hub import Hub, Link
from tamis.backends.cluster.messages import Leave
from tamis.backends.cluster.placement import PlacementReport, PlacementRequest
from tamis.backends.forking import launch
from tamis.engine.wire import Garbled, decode, encode, kinds
from tamis.memory.kill_tree import end_within

PLACER = "tamis.backends.cluster.placement"
END_S = 15.0


@dataclass(frozen=True)
class ClusterEndpoint:
    """The address of a running cluster."""

    address: str  # for the placement
    hub_host: str  # the address of this machine that the nodes reach
    environment: Mapping[str, str] = field(default_factory=dict)  # for the placer, such as a token


class Cluster(Protocol):
    """The cluster of one engine, as the driver sees it. Owned by a session."""

    @property
    def is_own(self) -> bool:
        """Return True if the cluster is this machine alone, started by `start` and ended by `stop`."""
        ...

    def start(self) -> ClusterEndpoint:
        """Have the cluster running."""
        ...

    def stop(self) -> None:
        """End the cluster if it is our own; return when it is gone."""

    def advice(self) -> str:
        """Return what a user who waits for a node should look at."""
        ...


class Session:
    """Agents of one cluster. `memory_bytes` is the budget of each node; `options` are for the placement."""

    def __init__(
        self, cluster: Cluster, placement: str, memory_bytes: int = 0, options: Mapping[str, Any] | None = None
    ) -> None:
        self.cluster, self._placement = cluster, placement
        self._memory_bytes, self._options = memory_bytes, dict(options or {})
        self.error = ""
        self.n_expected = 1
        self.gpus: list[float] = []  # that each node offers to its agent; empty: not known yet
        self._hub: Hub | None = None
        self._placer: subprocess.Popen[bytes] | None = None
        self._placer_socket: socket.socket | None = None
        self._links: list[Link] = []
        self._reports: deque[str] = deque(maxlen=20)
        self._n_jobs = 0
        self._log: IO[bytes] | None = None  # what the placer and the engine print; an unnamed file, so nothing remains

    def new_job(self) -> int:
        self._n_jobs += 1
        return self._n_jobs

    # -- lifecycle ----------------------------------------------------------------------------------------------------
    def start(self, wake: Callable[[], None]) -> None:
        """Have everything running. `wake` is called when an agent arrives."""
        if self._hub is not None and self._placer is not None and self._placer.poll() is None and not self.error:
            self._hub.on_arrival = wake
            return
        self.close()
        self.error, self.n_expected, self.gpus = "", 1, []
        endpoint = self.cluster.start()
        self._hub = Hub(endpoint.hub_host)
        self._hub.on_arrival = wake
        self._start_placer(self._hub, endpoint)

    def _start_placer(self, hub: Hub, endpoint: ClusterEndpoint) -> None:
        self._log = tempfile.TemporaryFile(prefix="tamis-placer-")  # noqa: SIM115 - closed with the session
        environment = {**os.environ, **endpoint.environment}
        self._placer, self._placer_socket = launch(PLACER, self._log.fileno(), environment)
        request = PlacementRequest(
            self._placement, endpoint.address, self._memory_bytes, self._options, hub.host, hub.port, hub.token
        )
        self._placer_socket.sendall(encode(request) + b"\n")
        threading.Thread(
            target=self._listen, args=(self._placer_socket, self._placer), name="tamis-placer", daemon=True
        ).start()

    def _listen(self, sock: socket.socket, placer: subprocess.Popen[bytes]) -> None:
        """Process the placer's reports: the nodes it expects, its progress, and why it gives up."""
        with contextlib.suppress(OSError, Garbled), sock.makefile("rb") as lines:  # a last line may be cut off
            for line in lines:
                report: PlacementReport = decode(line, kinds(PlacementReport))
                if report.n_nodes is not None:
                    self.n_expected = max(1, report.n_nodes)
                if report.gpus is not None:
                    self.gpus = report.gpus
                if report.text:
                    self._reports.append(report.text)
                if report.error:
                    self.error = report.error
                self._wake()
        placer.wait()
        if self._placer_socket is sock and not self.error:
            self.error = f"the process that has agents started (the placer) ended: {self.progress_text()}"
            self._wake()

    def _wake(self) -> None:
        if self._hub is not None:
            with contextlib.suppress(OSError):
                self._hub.on_arrival()

    def idle(self) -> None:
        """Stop waking the workers of a run that is over."""
        if self._hub is not None:
            self._hub.on_arrival = lambda: None

    def close(self) -> None:
        """End agents, placer and, if it is our own, the cluster. Returns when they are gone."""
        if self._hub is not None:
            self.take_arrivals()
            for link in self._links:
                link.channel.send(Leave())
                link.channel.close()
            self._links.clear()
            self._hub.close()
            self._hub = None
        placer_socket, self._placer_socket = self._placer_socket, None
        if placer_socket is not None:
            with contextlib.suppress(OSError):
                placer_socket.shutdown(socket.SHUT_WR)
        if self._placer is not None:
            end_within(self._placer, 2.0 if self.cluster.is_own else END_S)
            self._placer = None
        if placer_socket is not None:
            placer_socket.close()
        self.cluster.stop()
        if self._log is not None:
            self._log.close()
            self._log = None

    # -- agents -------------------------------------------------------------------------------------------------------
    def links(self) -> list[Link]:
        """Return the links of the agents that wait for a job."""
        self.take_arrivals()
        self._links = [link for link in self._links if not link.channel.closed]
        return list(self._links)

    def take_arrivals(self) -> list[Link]:
        """Return the links of the agents that have called since the last call."""
        new: list[Link] = []
        while self._hub is not None and not self._hub.arrivals.empty():
            new.append(self._hub.arrivals.get())
        self._links += new
        return new

    def drop(self, link: Link) -> None:
        """Forget the link of a lost agent; the placer provides a replacement."""
        self._links = [other for other in self._links if other is not link]

    def advice(self) -> str:
        """Return advice for a caller that waits for a node: the placer's last report, and what to check."""
        last = self._reports[-1] if self._reports else "the cluster is being started"
        return (
            f"Last: {last}. Wait; or {self.cluster.advice()} Ctrl-C ends the run, and the same command resumes it later"
        )

    def progress_text(self) -> str:
        """Return the placer's recent reports and the end of what it and the engine printed."""
        tail = ""
        if self._log is not None:
            with contextlib.suppress(OSError, ValueError):
                size = os.fstat(self._log.fileno()).st_size
                # By position: the placer writes at its own, in the same file.
                tail = os.pread(self._log.fileno(), 2000, max(0, size - 2000)).decode(errors="replace").strip()
        return "; ".join(self._reports) + (f"\n{tail}" if tail else "")
