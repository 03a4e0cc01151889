"""RayExecutor: which Ray cluster an executor uses, and its own on this machine where there is none."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tamis.backends.cluster.executor import ClusterExecutor
from tamis.backends.cluster.session import ClusterEndpoint
from tamis.backends.ray_cluster.head import Head, HeadOptions
from tamis.backends.ray_cluster.options import RayOptions
from tamis.engine.monitor.monitor import Watch
from tamis.engine.progress import Progress
from tamis.errors import WorkerError

ADDRESS_VARIABLE = "RAY_ADDRESS"


class RayExecutor(ClusterExecutor):
    """Workers on every node of a Ray cluster.

    `address`: of a running cluster (HOST:PORT, or "auto"). Without: the one that ray.init() or a RayClient began in
    this program, else the one that RAY_ADDRESS names, else its own on this machine, which ends with the
    executor. `ignore_head_node`: no workers on the node where the cluster's own processes are (if there are others).
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        ignore_head_node: bool = False,
        *,
        address: str | None = None,
        progress: Progress | None = None,
        watch: Watch | None = None,
        report: bool = True,
    ) -> None:
        super().__init__(config, address=address, progress=progress, watch=watch, report=report)
        self.ignore_head_node = ignore_head_node

    def cluster(self, budget_bytes: int) -> RayCluster:
        address = self.address or address_of_this_program() or os.environ.get(ADDRESS_VARIABLE, "")
        return RayCluster(address, self.head_options(budget_bytes))

    def ray_options(self) -> RayOptions:
        """Return the options for the placement, from `config` and the parameters."""
        own = {key: self.config[key] for key in self.own_config if key in self.config}
        return RayOptions(ignore_head_node=self.ignore_head_node, **own)

    def placement_options(self) -> dict[str, Any]:
        return asdict(self.ray_options())

    def head_options(self, budget_bytes: int) -> HeadOptions:
        """Return the options for the head of our own cluster: all cores, like the local executor."""
        return HeadOptions(num_cpus=len(os.sched_getaffinity(0)), memory_bytes=budget_bytes)


class RayCluster:
    """A running Ray cluster (`address`), or one of our own on this machine ("" or "local") from `start` to `stop`."""

    def __init__(self, address: str, options: HeadOptions | None = None) -> None:
        self._address, self._options = address, options
        self._head: Head | None = None

    @property
    def is_own(self) -> bool:
        return self._address in ("", "local")

    def start(self) -> ClusterEndpoint:
        if not self.is_own:
            return ClusterEndpoint(self._address, reachable_host(self._address))
        self._head = Head(self._options)
        return ClusterEndpoint(self._head.start(), "127.0.0.1", self._head.environment)

    def stop(self) -> None:
        if self._head is not None:
            self._head.stop()
            self._head = None

    def advice(self) -> str:
        if self.is_own:
            return "the cluster is this machine: is it busy with something else, or short of memory?"
        return f"see what it is busy with: ray status --address {self._address}"


def address_of_this_program() -> str:
    """Return the address of the cluster that ray.init() started or joined in this program; "" if it did not.

    Does not import Ray.
    """
    ray = sys.modules.get("ray")
    with contextlib.suppress(Exception):
        if ray is not None and ray.is_initialized():
            return str(ray.get_runtime_context().gcs_address)
    return ""


def reachable_host(cluster: str) -> str:
    """Return the address of this machine that nodes of the cluster reach: the one from which it reaches the cluster."""
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
