"""A cluster while it is used: the hub that agents call, and the placer that has Ray start them; for several runs, one after the other."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import IO, Any

from tamis.backends.cluster.head import Head, HeadOptions, check_installed
from tamis.backends.cluster.hub import Hub, Link
from tamis.backends.forking import launch
from tamis.errors import WorkerError
from tamis.memory.kill_tree import end_within

PLACER = "tamis.backends.cluster.placer"
END_S = 15.0


@dataclass(frozen=True)
class Wish:
    """What the placer is asked for. `how`: the module of placing/ that does it; `options`: for that module alone."""

    how: str
    address: str = ""
    memory_bytes: int = 0  # of each node, told to Ray as a resource where the node has so much
    options: dict[str, Any] = field(default_factory=dict)


class Session:
    """`address`: a running cluster; "": one of our own on this machine, which ends with the session."""

    def __init__(self, wish: Wish, head: HeadOptions | None = None) -> None:
        self.wish, self._head_options = wish, head
        self.error = ""
        self.n_expected = 1
        self.gpus: list[float] = []  # that each node offers to the agent on it; empty: not known yet
        self._hub: Hub | None = None
        self._head: Head | None = None
        self._placer: subprocess.Popen[bytes] | None = None
        self._ours: socket.socket | None = None
        self._links: list[Link] = []
        self._story: deque[str] = deque(maxlen=20)
        self._n_jobs = 0
        self._log: IO[bytes] | None = None  # what the placer and Ray print; it has no name, so nothing is left of it

    @property
    def _address(self) -> str:
        return self.wish.address or os.environ.get("RAY_ADDRESS", "")

    @property
    def is_own_cluster(self) -> bool:
        """True if the cluster is this machine alone, started by the session."""
        return self._address in ("", "local")

    def new_job(self) -> int:
        self._n_jobs += 1
        return self._n_jobs

    # -- life -------------------------------------------------------------------------------------------------------------
    def start(self, wake: Callable[[], None]) -> None:
        """Have everything running. `wake` is called when an agent arrives."""
        if self._hub is not None and self._placer is not None and self._placer.poll() is None and not self.error:
            self._hub.on_arrival = wake
            return
        self.close()
        check_installed("cosmos_xenna" if self.wish.how == "xenna" else "ray")
        self.error, self.n_expected, self.gpus = "", 1, []
        address, environment = self._address, dict(os.environ)
        if self.is_own_cluster:
            self._head = Head(self._head_options)
            address = self._head.start()
            environment |= self._head.environment
        self._hub = Hub("127.0.0.1" if self._head is not None else own_address(address))
        self._hub.on_arrival = wake
        self._place(address, environment)

    def _place(self, address: str, environment: Mapping[str, str]) -> None:
        assert self._hub is not None
        self._log = tempfile.TemporaryFile(prefix="tamis-placer-")  # noqa: SIM115 - closed with the session
        self._placer, self._ours = launch(PLACER, self._log.fileno(), environment)
        told = {
            **asdict(self.wish),
            "address": address,
            "hub": [self._hub.host, self._hub.port],
            "token": self._hub.token,
        }
        self._ours.sendall(json.dumps(told).encode() + b"\n")
        threading.Thread(target=self._listen, args=(self._ours, self._placer), name="tamis-placer", daemon=True).start()

    def _listen(self, sock: socket.socket, placer: subprocess.Popen[bytes]) -> None:
        """Process the placer's messages: the nodes it expects, its progress, and why it gives up."""
        with contextlib.suppress(OSError, ValueError), sock.makefile("rb") as lines:  # a last line may be cut off
            for line in lines:
                told = json.loads(line)
                self.n_expected = max(1, int(told.get("n_nodes", self.n_expected)))
                self.gpus = [float(n) for n in told.get("gpus", self.gpus)]
                if "text" in told:
                    self._story.append(str(told["text"]))
                if told.get("error"):
                    self.error = str(told["error"])
                self._wake()
        placer.wait()
        if self._ours is sock and not self.error:
            self.error = f"the process that talks to Ray ended: {self.story()}"
            self._wake()

    def _wake(self) -> None:
        if self._hub is not None:
            with contextlib.suppress(OSError):
                self._hub.on_arrival()

    def idle(self) -> None:
        """Between two runs: nobody is woken."""
        if self._hub is not None:
            self._hub.on_arrival = lambda: None

    def close(self) -> None:
        """End agents, placer and, if it is ours, the cluster. Returns when they are gone."""
        from tamis.backends.cluster.messages import Leave

        if self._hub is not None:
            self.take_arrivals()
            for link in self._links:
                link.channel.send(Leave())
                link.channel.close()
            self._links.clear()
            self._hub.close()
            self._hub = None
        ours, self._ours = self._ours, None
        if ours is not None:
            with contextlib.suppress(OSError):
                ours.shutdown(socket.SHUT_WR)
        if self._placer is not None:
            end_within(self._placer, 2.0 if self._head is not None else END_S)
            self._placer = None
        if ours is not None:
            ours.close()
        if self._head is not None:
            self._head.stop()
            self._head = None
        if self._log is not None:
            self._log.close()
            self._log = None

    # -- agents -----------------------------------------------------------------------------------------------------------
    def links(self) -> list[Link]:
        """Agents that wait for a job (and were not lost)."""
        self.take_arrivals()
        self._links = [link for link in self._links if not link.channel.closed]
        return list(self._links)

    def take_arrivals(self) -> list[Link]:
        """Agents that have called since this was last asked."""
        new: list[Link] = []
        while self._hub is not None and not self._hub.arrivals.empty():
            new.append(self._hub.arrivals.get())
        self._links += new
        return new

    def lose(self, link: Link) -> None:
        """Forget the link of a lost agent; the placer provides a replacement."""
        self._links = [other for other in self._links if other is not link]

    def advice(self) -> str:
        """Return advice for a caller that waits for a node: the placer's last action, and what to check."""
        last = self._story[-1] if self._story else "Ray is being started"
        if self._head is not None:
            look = "the cluster is this machine: is it busy with something else, or short of memory?"
        else:
            look = f"see what it is busy with: ray status --address {self.wish.address or os.environ.get('RAY_ADDRESS', 'auto')}"
        return f"Last: {last}. Wait; or {look} Ctrl-C ends the run, and the same command goes on later"

    def story(self) -> str:
        """Return the placer's recent actions and the end of the output that it and Ray printed."""
        tail = ""
        if self._log is not None:
            with contextlib.suppress(OSError, ValueError):
                size = os.fstat(self._log.fileno()).st_size
                # by position: the placer writes on at its own, which is the same file's
                tail = os.pread(self._log.fileno(), 2000, max(0, size - 2000)).decode(errors="replace").strip()
        return "; ".join(self._story) + (f"\n{tail}" if tail else "")


def own_address(cluster: str) -> str:
    """Return the address at which nodes of this cluster reach us: the one from which we reach the cluster."""
    if cluster == "auto":
        with contextlib.suppress(OSError), open("/tmp/ray/ray_current_cluster", encoding="ascii") as file:
            cluster = file.read().strip()
    host, _, port = cluster.removeprefix("ray://").rpartition(":")
    if host in ("", "auto", "localhost", "127.0.0.1"):
        return "127.0.0.1"
    with contextlib.suppress(OSError, ValueError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((host, int(port or 0) or 6379))
        return str(sock.getsockname()[0])
    raise WorkerError(f"the cluster's address {cluster} cannot be reached from here; expected HOST:PORT")
