"""Machines that workers are on: each has a budget, a pool, GPUs and a pressure of its own. Pure.

One machine is the usual case: a run without a cluster has one node, number 0, with the figures of its configuration. On a cluster nodes
come and go while a run goes on; what is learned on one (how much memory a partition takes) is known on all.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tamis.engine.supervisor.devices import Devices
from tamis.engine.supervisor.grants import Grants
from tamis.engine.supervisor.state import Config, NodeSpec, Worker
from tamis.memory.pressure import Decision, Pressure


@dataclass
class Node:
    """`config`: that of the run with the figures of this machine; `workers`: those that are on it."""

    id: int
    config: Config
    grants: Grants
    devices: Devices
    workers: dict[int, Worker]
    name: str = ""
    used_bytes: int = 0
    n_units: int = 0  # done by its workers
    pressure: Pressure = field(default_factory=Pressure)
    decision: Decision = field(default_factory=Decision)

    @property
    def progressing(self) -> bool:
        """Somebody here works and will report; a feeder that waits for room will not."""
        return any(w.unit is not None and not w.held for w in self.workers.values())

    @property
    def n_busy(self) -> int:
        return sum(w.unit is not None for w in self.workers.values())


def this_machine(config: Config, grants: Grants, workers: dict[int, Worker]) -> Node:
    """Return the only node of a run without a cluster; all workers are on it."""
    return Node(0, config, grants, Devices(config.devices, config.gpus or (), config.gpu_bytes), workers)


def remote(spec: NodeSpec, config: Config, grants: Grants) -> Node:
    """Return a node of a cluster, without workers yet."""
    own = replace(
        config, budget_bytes=spec.budget_bytes, pool_bytes=spec.pool_bytes, worker_bytes=spec.worker_bytes, n_slots=spec.n_slots,
        shared_bytes=spec.shared_bytes, devices=list(spec.devices), fixed_workers=list(spec.fixed_workers), nodes=None,
    )  # fmt: skip
    workers: dict[int, Worker] = {}
    return Node(
        spec.id, own, grants.on(own, workers), Devices(own.devices, own.gpus or (), own.gpu_bytes), workers, spec.name
    )
