"""Nodes of a Ray cluster and the agents on them.

Runs in the placer, and in processes that Ray starts; never in the driver.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from dataclasses import replace
from typing import Any

from tamis.backends.cluster.agent_spec import AgentSpec
from tamis.backends.cluster.placement import AgentProcess, PlacementRequest
from tamis.backends.ray_cluster.options import options_of

Node = dict[str, Any]  # as ray.nodes() describes it


class RayConnection:
    """The placer's connection to Ray: what every placement on Ray (cluster/placement.py) begins and ends with."""

    def connect(self, address: str) -> None:
        """Join this cluster, and make it the default one of this process.

        Where several run on a machine, Ray's own tools (and with them Xenna) take any that they find, and wait for
        minutes for one whose token they do not know.
        """
        import ray

        ray.init(address=address, log_to_driver=False, ignore_reinit_error=True, configure_logging=False)
        os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address

    def disconnect(self) -> None:
        import ray

        ray.shutdown()


def usable_nodes(request: PlacementRequest) -> dict[str, Node]:
    """Return the live nodes by id; without the head if it is to be left alone and is not the only node."""
    import ray

    nodes = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
    if options_of(request).ignore_head_node and len(nodes) > 1:
        return {i: node for i, node in nodes.items() if "node:__internal_head__" not in node["Resources"]}
    return nodes


def cpus_and_gpus(resources: dict[str, float], request: PlacementRequest) -> tuple[int, float]:
    """Return the CPUs and GPUs that an agent may use on a node with these resources, less the reserved ones."""
    options = options_of(request)
    n_cpus = int(resources.get("CPU", 0) - float(options.reserved_cpus))
    n_gpus = max(0.0, resources.get("GPU", 0) - float(options.reserved_gpus))
    return max(1, n_cpus), n_gpus


def start_agent(spec: AgentSpec) -> AgentProcess:
    """Start the agent of this node, described as Ray describes the node."""
    return AgentProcess(
        replace(spec, name=spec.name or node_name(), declared_bytes=spec.declared_bytes or declared_bytes())
    )


def declared_bytes() -> int:
    """Return the memory that Ray declares for this node (`ray start --memory`, `ray.init(_memory=...)`).

    0 outside of Ray.
    """
    ray: Any = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return 0
    node_id = ray.get_runtime_context().get_node_id()
    return next((int(n["Resources"].get("memory", 0)) for n in ray.nodes() if n["NodeID"] == node_id), 0)


def node_name() -> str:
    """Return the name of this node as Ray knows it: its address and the beginning of its id.

    The id is included because several nodes may run on one machine.
    """
    # In a process of Ray's it is loaded; importing it elsewhere would make that process join a cluster.
    ray: Any = sys.modules.get("ray")
    with contextlib.suppress(Exception):
        if ray is None or not ray.is_initialized():
            return socket.gethostname()
        return f"{ray.util.get_node_ip_address()}-{ray.get_runtime_context().get_node_id()[:6]}"
    return socket.gethostname()
