"""Places one actor on every node of the cluster, each with an agent below it.

Replaced where it dies, added where a node joins.

Of its options (options.py), `reserved_cpus` and `reserved_gpus` are left to others on every node;
`resource_wait_timeout_s` is how long CPUs that others hold are waited for (then the agent does without them, as far as
Ray's books go), `resource_wait_interval_s` how often nodes are looked at.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from tamis.backends.cluster.agent_spec import AgentSpec
from tamis.backends.cluster.placement import DriverLink, PlacementRequest
from tamis.backends.ray_cluster.nodes import Node, RayConnection, cpus_and_gpus, start_agent, usable_nodes
from tamis.backends.ray_cluster.options import options_of

_MAX_STARTS = 100  # of agents on one node: one that never stays is not started forever
_PING_S = 2.0


class NodeAgent:
    """Started in the constructor, which Ray runs in the main thread."""

    def __init__(self, spec: AgentSpec) -> None:
        self._agent = start_agent(spec)

    def status(self) -> int | None:
        """Return the exit status of the agent; None while it runs."""
        return self._agent.wait(0.0)


class ActorPlacement(RayConnection):
    """Keeps one `NodeAgent` on every node."""

    def __init__(self) -> None:
        self._actors: dict[str, Any] = {}  # by id of the node, as all of these
        self._pings: dict[str, tuple[float, Any]] = {}  # when it was last asked, and the answer that is awaited
        self._n_starts: dict[str, int] = {}
        self._waiting_since_s: dict[str, float] = {}

    def place(self, request: PlacementRequest, driver: DriverLink) -> None:
        import ray

        pause_s = max(float(options_of(request).resource_wait_interval_s), 0.05)
        while not driver.ended.is_set():
            self._start_missing(request, driver)
            self._forget_dead(driver)
            driver.ended.wait(pause_s if len(self._pings) < len(self._actors) else max(pause_s, 0.5))
        for actor in self._actors.values():
            with contextlib.suppress(Exception):
                ray.kill(actor)

    def _start_missing(self, request: PlacementRequest, driver: DriverLink) -> None:
        nodes = usable_nodes(request)
        usable = {i: n for i, n in nodes.items() if self._n_starts.get(i, 0) < _MAX_STARTS}
        gpus = [cpus_and_gpus(node["Resources"], request)[1] for node in usable.values()]
        driver.report(n_nodes=len(usable), gpus=gpus)
        if not usable:
            driver.report(text=f"no node of the cluster can be used ({len(nodes)} alive)")
        for node_id in [i for i in self._actors if i not in nodes]:
            del self._actors[node_id]
        for node_id, node in usable.items():
            if node_id not in self._actors and not self._is_worth_waiting(node_id, node, request):
                self._n_starts[node_id] = self._n_starts.get(node_id, 0) + 1
                self._actors[node_id] = _start_actor(node_id, node, request)
                driver.report(text=f"starting an agent on {node['NodeManagerAddress']}")
                self._pings.pop(node_id, None)

    def _is_worth_waiting(self, node_id: str, node: Node, request: PlacementRequest) -> bool:
        """Return True while others hold CPUs of the node that we want and may give them back in time.

        Then we do without.
        """
        n_cpus, _ = cpus_and_gpus(node["Resources"], request)
        waited_s = time.monotonic() - self._waiting_since_s.setdefault(node_id, time.monotonic())
        timeout_s = float(options_of(request).resource_wait_timeout_s)
        if int(_free_resources(node_id).get("CPU", 0)) >= n_cpus or waited_s > timeout_s:
            del self._waiting_since_s[node_id]
            return False
        return True

    def _forget_dead(self, driver: DriverLink) -> None:
        """Ask each actor now and then for the status of its agent; one that is gone makes room for the next."""
        import ray

        now_s = time.monotonic()
        for node_id in list(self._actors):
            asked_s, answer = self._pings.get(node_id, (now_s - _PING_S, None))
            if answer is None:
                if now_s - asked_s >= _PING_S:
                    self._pings[node_id] = now_s, self._actors[node_id].status.remote()
                continue
            done, _ = ray.wait([answer], timeout=0)
            if not done:
                continue
            try:
                status = ray.get(answer)
            except ray.exceptions.RayError as exc:
                status = -1
                driver.report(text=f"an agent is gone: {type(exc).__name__}")
            self._pings[node_id] = now_s, None
            if status is not None:
                with contextlib.suppress(Exception):
                    ray.kill(self._actors[node_id])
                del self._actors[node_id]
                self._pings.pop(node_id, None)


def _start_actor(node_id: str, node: Node, request: PlacementRequest) -> Any:
    """Start an actor on this node and no other.

    It asks for at most the CPUs that are free there: Ray would wait for the others.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    n_cpus, n_gpus = cpus_and_gpus(node["Resources"], request)
    free = _free_resources(node_id)
    remote_class: Any = ray.remote(max_restarts=0)(NodeAgent)
    return remote_class.options(
        num_cpus=min(n_cpus, int(free.get("CPU", 0))),
        num_gpus=min(n_gpus, free.get("GPU", 0)),
        memory=min(request.memory_bytes, int(free.get("memory", 0))),
        runtime_env=options_of(request).runtime_env or None,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False),
    ).remote(request.agent(n_cpus))


def _free_resources(node_id: str) -> dict[str, float]:
    import ray

    free: dict[str, float] = ray._private.state.available_resources_per_node().get(node_id, {})
    return free
