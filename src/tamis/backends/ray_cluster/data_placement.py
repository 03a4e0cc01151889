"""Ray Data: leases are the rows of a dataset, and a pool of actors, one on every node, maps them.

Ray Data starts the actors, replaces those that die (and runs their lease again), and shows them. An agent never raises:
a dataset would end with it. The rows are made here and put into the object store: a dataset that reads them does so in
its own tasks, which need a CPU each, and where the actors hold all of them neither could continue without the other.
"""

from __future__ import annotations

import os
from typing import Any

from tamis.backends.cluster.agent_spec import AgentSpec
from tamis.backends.cluster.placement import DriverLink, PlacementRequest
from tamis.backends.ray_cluster.leases import LeaseHolder, repeat
from tamis.backends.ray_cluster.nodes import Node, RayConnection, cpus_and_gpus

_N_ROWS = 256  # of one dataset; another follows while the run continues


class PooledAgent:
    """One actor of the pool, which dies with its agent.

    Ray Data constructs it in the main thread of its process, and replaces it where it dies.
    """

    def __init__(self, spec: AgentSpec) -> None:
        self._holder = LeaseHolder(spec, on_loss=lambda: os._exit(1))

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        rows = [self._holder.work(int(lease)) for lease in batch["item"]]
        return {name: [row[name] for row in rows] for name in rows[0]}


class DataPlacement(RayConnection):
    """Maps one dataset of leases after the other."""

    def place(self, request: PlacementRequest, driver: DriverLink) -> None:
        import ray
        from ray.data import DataContext

        context = DataContext.get_current()
        context.enable_progress_bars = False
        context.max_errored_blocks = 0
        repeat(driver, request, "Ray Data", lambda nodes: _map_leases(request, driver, nodes), ray.exceptions.RayError)


def _map_leases(request: PlacementRequest, driver: DriverLink, nodes: list[Node]) -> None:
    import ray
    from ray.data import ActorPoolStrategy

    offers = [cpus_and_gpus(n["Resources"], request) for n in nodes] or [(1, 0.0)]
    n_cpus, n_gpus = min(cpus for cpus, _ in offers), min(gpus for _, gpus in offers)
    memory = min([request.memory_bytes, *(int(n["Resources"].get("memory", 0)) for n in nodes)])
    # All but a little of a node's CPUs: so that two actors never share one, and others find room for something small.
    share = max(n_cpus - 0.25, n_cpus * 0.75)
    mapped = ray.data.from_items(list(range(_N_ROWS)), override_num_blocks=_N_ROWS).map_batches(
        PooledAgent,
        batch_size=1,
        fn_constructor_args=(request.agent(n_cpus),),
        num_cpus=share,
        num_gpus=n_gpus or None,
        memory=memory or None,
        compute=ActorPoolStrategy(
            min_size=1, max_size=len(nodes), initial_size=len(nodes), max_tasks_in_flight_per_actor=1
        ),
    )
    for row in mapped.iter_rows():
        if driver.ended.is_set():
            return
        if row["over"]:
            driver.report(text=f"the agent on {row['node']} has ended")
            return  # with the dataset its actors end; the next one starts them again
