"""The agent of one node, started below a process of Ray's: by an actor, or by a stage of Ray Data or Xenna."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from typing import Any


class StartedAgent:
    """Start it in the main thread of the process: it dies with the thread that started it, by a signal of the kernel's.

    `about`: host, port and token of the hub, and what Ray gave to this process.
    """

    def __init__(self, about: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tamis.backends.cluster.agent"],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self.ended = False  # by us
        assert self._process.stdin is not None
        told = {
            "parent": os.getpid(), "name": about.get("name") or node_name(), "declared_bytes": declared_bytes(), **about,
        }  # fmt: skip
        with self._process.stdin as pipe:
            pipe.write(json.dumps(told).encode() + b"\n")

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self, seconds: float | None = None) -> int | None:
        """Return the exit status of the agent; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    def end(self) -> None:
        self.ended = True
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def declared_bytes() -> int:
    """Return the memory that Ray declares for this node (`ray start --memory`, `ray.init(_memory=...)`); 0 outside of Ray."""
    ray: Any = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return 0
    own = ray.get_runtime_context().get_node_id()
    return next((int(n["Resources"].get("memory", 0)) for n in ray.nodes() if n["NodeID"] == own), 0)


def node_name() -> str:
    """Return the name of this node as Ray knows it: its address and the beginning of its id.

    The id is included because several nodes may run on one machine.
    """
    # In a process of Ray's it is there; asking it elsewhere would make it join a cluster.
    ray: Any = sys.modules.get("ray")
    with contextlib.suppress(Exception):
        if ray is None or not ray.is_initialized():
            return socket.gethostname()
        return f"{ray.util.get_node_ip_address()}-{ray.get_runtime_context().get_node_id()[:6]}"
    return socket.gethostname()
