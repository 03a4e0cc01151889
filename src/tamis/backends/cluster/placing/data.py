"""Ray Data: leases are the rows of a dataset, and a pool of actors, one on every node, maps them.

Ray Data starts the actors, replaces those that die (and runs their lease again), and shows them. An agent never raises: a dataset would end with it.
The rows are made here and put into the object store: a dataset that reads them does so in tasks of its own, which want a CPU each, and where the actors
hold all of them neither could go on without the other.
"""

from __future__ import annotations

import os
from typing import Any

from tamis.backends.cluster.placing.actors import agent_facts, cpus_and_gpus
from tamis.backends.cluster.placing.driver import Driver
from tamis.backends.cluster.placing.leases import LeaseHolder, repeat

_N_ROWS = 256  # of one dataset; another follows while the run goes on


class Node:
    """One actor of the pool. Ray Data constructs it in the main thread of its process, and makes another where it dies: it dies with its agent."""

    def __init__(self, about: dict[str, Any]) -> None:
        self._holder = LeaseHolder(about, on_loss=lambda: os._exit(1))

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        rows = [self._holder.work(int(lease)) for lease in batch["item"]]
        return {name: [row[name] for row in rows] for name in rows[0]}


def place(wish: dict[str, Any], driver: Driver) -> None:
    """Datasets one after the other until the driver has had enough."""
    import ray
    from ray.data import DataContext

    context = DataContext.get_current()
    context.enable_progress_bars = False
    context.max_errored_blocks = 0
    repeat(driver, wish, "Ray Data", lambda nodes: _one(wish, driver, nodes), ray.exceptions.RayError)


def _one(wish: dict[str, Any], driver: Driver, nodes: list[dict[str, Any]]) -> None:
    import ray
    from ray.data import ActorPoolStrategy

    offers = [cpus_and_gpus(n["Resources"], wish) for n in nodes] or [(1, 0.0)]
    n_cpus, n_gpus = min(cpus for cpus, _ in offers), min(gpus for _, gpus in offers)
    # All but a little of a node's CPUs: so that two actors never share one, and others find room for something small.
    about = agent_facts(wish, n_cpus)
    memory = min([wish["memory_bytes"], *(int(n["Resources"].get("memory", 0)) for n in nodes)])
    share = max(n_cpus - 0.25, n_cpus * 0.75)
    mapped = ray.data.from_items(list(range(_N_ROWS)), override_num_blocks=_N_ROWS).map_batches(
        Node, batch_size=1, fn_constructor_args=(about,), num_cpus=share, num_gpus=n_gpus or None, memory=memory or None,
        compute=ActorPoolStrategy(min_size=1, max_size=len(nodes), initial_size=len(nodes), max_tasks_in_flight_per_actor=1),
    )  # fmt: skip
    for row in mapped.iter_rows():
        if driver.ended.is_set():
            return
        if row["over"]:
            driver.tell(text=f"the agent on {row['node']} has ended")
            return  # with the dataset its actors end; the next one starts them again
