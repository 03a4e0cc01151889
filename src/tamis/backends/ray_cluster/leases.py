"""A lease: a turn of work for the workers of one node, as a row of Ray Data or an item of Xenna.

What a lease does is decided as it runs: the driver gives units to any worker that is free. A lease ends after some
seconds, so that rows stream through the pipeline, and the engine around it sees progress and may scale; the agent and
its workers stay for the next lease. When the run is over, agents end, and all remaining leases end at once.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

from tamis.backends.cluster.agent_spec import AgentSpec
from tamis.backends.cluster.placement import AgentProcess, DriverLink, PlacementRequest
from tamis.backends.ray_cluster.nodes import Node, cpus_and_gpus, node_name, start_agent, usable_nodes

LEASE_S = 10.0
_LOOK_S = 0.5
_MAX_FAILED = 20


class LeaseHolder:
    """Holds the agent of its process, and works off leases. Made in the main thread; `work` may be called in another.

    `on_loss` is called when the agent was killed or failed, during a lease or between two; without it the remaining
    leases end at once. An agent that the driver shut down is no loss.
    """

    def __init__(self, spec: AgentSpec, on_loss: Callable[[], object] | None = None) -> None:
        self._agent = start_agent(spec)
        self._is_over = False
        if on_loss is not None:
            threading.Thread(target=_watch, args=(self._agent, on_loss), name="tamis-watch", daemon=True).start()

    def work(self, lease: int) -> dict[str, Any]:
        """Return when the lease has run out or the agent has ended; the values are for people."""
        began_s = time.monotonic()
        status = None if self._is_over else self._agent.wait(LEASE_S)
        if status is not None:
            self._is_over = True
        return {
            "lease": lease,
            "node": node_name(),
            "agent": self._agent.pid,
            "seconds": round(time.monotonic() - began_s, 2),
            "over": self._is_over,
        }

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self._agent.end()


def repeat(
    driver: DriverLink,
    request: PlacementRequest,
    title: str,
    run: Callable[[list[Node]], None],
    faults: type[Exception],
) -> None:
    """Call `run` with the usable nodes, again and again until the driver needs no more agents.

    A call ends early where its agents end, or fails with them (with `faults`). `title`: of what it runs, for people.
    """
    n_failed = 0
    while not driver.ended.is_set():
        nodes = list(usable_nodes(request).values())
        # The actors of one pool are alike: each has what the smallest node offers.
        gpus = [min(cpus_and_gpus(n["Resources"], request)[1] for n in nodes)] if nodes else []
        driver.report(n_nodes=len(nodes), gpus=gpus, text=f"{title} over {len(nodes)} nodes")
        try:
            run(nodes)
        except faults as exc:
            n_failed += 1
            driver.report(text=f"{title} ended: {type(exc).__name__}: {str(exc)[:300]}")
            if n_failed > _MAX_FAILED:
                raise
            driver.ended.wait(min(n_failed, 5))


def _watch(agent: AgentProcess, on_loss: Callable[[], object]) -> None:
    """Wait for the end of an agent.

    Keeps no reference to the holder, which must be collectable, and its agent with it.
    """
    while (status := agent.wait(_LOOK_S)) is None:
        pass
    if status != 0 and not agent.was_ended:
        on_loss()
