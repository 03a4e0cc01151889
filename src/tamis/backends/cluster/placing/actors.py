"""One actor on every node of the cluster, each with an agent below it; replaced where it dies, added where a node joins.

Options: `reserved_cpus`, `reserved_gpus` (left to others on every node), `resource_wait_timeout_s` (for CPUs that others hold: then the agent
does without them, as far as Ray's books go), `resource_wait_interval_s` (how often nodes are looked at), `ignore_head_node`, `runtime_env`.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from tamis.backends.cluster.placing.driver import Driver
from tamis.backends.cluster.placing.started import StartedAgent

_MAX_STARTS = 100  # of agents on one node: one that never stays is not tried for ever
_PING_S = 2.0


class NodeAgent:
    """Started in the constructor, which Ray runs in the main thread."""

    def __init__(self, about: dict[str, Any]) -> None:
        self._agent = StartedAgent(about)

    def status(self) -> int | None:
        """Return the exit status of the agent; None while it runs."""
        return self._agent.wait(0.0)


def place(wish: dict[str, Any], driver: Driver) -> None:
    """Until the driver has had enough."""
    import ray

    actors: dict[str, Any] = {}
    asked: dict[str, tuple[float, Any]] = {}
    n_starts: dict[str, int] = {}
    waiting: dict[str, float] = {}
    options = wish["options"]
    pause_s = max(float(options.get("resource_wait_interval_s", 0.2)), 0.05)
    while not driver.ended.is_set():
        nodes = usable_nodes(wish)
        usable = {i: n for i, n in nodes.items() if n_starts.get(i, 0) < _MAX_STARTS}
        driver.tell(n_nodes=len(usable), gpus=[cpus_and_gpus(n["Resources"], wish)[1] for n in usable.values()])
        if not usable:
            driver.tell(text=f"no node of the cluster can be used ({len(nodes)} alive)")
        for gone in [i for i in actors if i not in nodes]:
            del actors[gone]
        for node_id, node in usable.items():
            if node_id not in actors and not _is_worth_waiting(node_id, node, wish, waiting):
                n_starts[node_id] = n_starts.get(node_id, 0) + 1
                actors[node_id] = _start(node_id, node, wish)
                driver.tell(text=f"starting an agent on {node['NodeManagerAddress']}")
                asked.pop(node_id, None)
        _forget_dead(actors, asked, driver)
        driver.ended.wait(pause_s if len(asked) < len(actors) else max(pause_s, 0.5))
    for actor in actors.values():
        with contextlib.suppress(Exception):
            ray.kill(actor)


def usable_nodes(wish: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Nodes of the cluster that are alive, by their ids; without the head, if that is to be left alone and is not the only one."""
    import ray

    nodes = {n["NodeID"]: n for n in ray.nodes() if n["Alive"]}
    if wish["options"].get("ignore_head_node") and len(nodes) > 1:
        return {i: n for i, n in nodes.items() if "node:__internal_head__" not in n["Resources"]}
    return nodes


def _is_worth_waiting(node_id: str, node: dict[str, Any], wish: dict[str, Any], waiting: dict[str, float]) -> bool:
    """Others hold CPUs or memory of the node that we want, and may give them back: for so long, then we do without."""
    import ray

    n_cpus, _ = cpus_and_gpus(node["Resources"], wish)
    free = ray._private.state.available_resources_per_node().get(node_id, {})
    began_s = waiting.setdefault(node_id, time.monotonic())
    if int(free.get("CPU", 0)) >= n_cpus or time.monotonic() - began_s > float(
        wish["options"].get("resource_wait_timeout_s", 5.0)
    ):
        del waiting[node_id]
        return False
    return True


def _start(node_id: str, node: dict[str, Any], wish: dict[str, Any]) -> Any:
    """Start an actor on this node and no other.

    Does not wait for CPUs of the node that other processes hold: see _cpus_of.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    n_cpus, n_gpus = cpus_and_gpus(node["Resources"], wish)
    free = ray._private.state.available_resources_per_node().get(node_id, {})
    about = agent_facts(wish, n_cpus)
    kind: Any = ray.remote(max_restarts=0)(NodeAgent)
    return kind.options(
        num_cpus=min(n_cpus, int(free.get("CPU", 0))), num_gpus=min(n_gpus, free.get("GPU", 0)),
        memory=min(wish["memory_bytes"], int(free.get("memory", 0))), runtime_env=wish["options"].get("runtime_env") or None,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False),
    ).remote(about)  # fmt: skip


def cpus_and_gpus(resources: dict[str, float], wish: dict[str, Any]) -> tuple[int, float]:
    """Return the CPUs and GPUs that an agent may use on a node with these resources, less the reserved ones."""
    options = wish["options"]
    n_cpus = int(resources.get("CPU", 0) - float(options.get("reserved_cpus", 0.0)))
    n_gpus = max(0.0, resources.get("GPU", 0) - float(options.get("reserved_gpus", 0.0)))
    return max(1, n_cpus), n_gpus


def agent_facts(wish: dict[str, Any], n_cpus: int) -> dict[str, Any]:
    """Return the parameters that an agent needs (agent.main)."""
    host, port = wish["hub"]
    return {"host": host, "port": port, "token": wish["token"], "n_cpus": n_cpus}


def _forget_dead(actors: dict[str, Any], asked: dict[str, tuple[float, Any]], driver: Driver) -> None:
    """Ask each actor now and then how its agent is; one that is gone makes room for the next."""
    import ray

    now_s = time.monotonic()
    for node_id in list(actors):
        at_s, answer = asked.get(node_id, (now_s - _PING_S, None))
        if answer is None:
            if now_s - at_s >= _PING_S:
                asked[node_id] = now_s, actors[node_id].status.remote()
            continue
        done, _ = ray.wait([answer], timeout=0)
        if not done:
            continue
        try:
            status = ray.get(answer)
        except ray.exceptions.RayError as exc:
            status = -1
            driver.tell(text=f"an agent is gone: {type(exc).__name__}")
        asked[node_id] = now_s, None
        if status is not None:
            with contextlib.suppress(Exception):
                ray.kill(actors[node_id])
            del actors[node_id]
            asked.pop(node_id, None)
