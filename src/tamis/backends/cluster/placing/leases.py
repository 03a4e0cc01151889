"""A lease: a turn of work for the workers of one node, as a row of Ray Data or an item of Xenna.

What is in a lease is decided as it goes: the driver gives units to whichever worker is free. A lease ends after so many seconds, so that rows stream
through the pipeline, the engine around it sees progress, may move on and may scale; the agent and its workers stay for the next lease. When the run is
over, agents end, and all leases that are left end at once.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

from tamis.backends.cluster.placing.actors import cpus_and_gpus, usable_nodes
from tamis.backends.cluster.placing.driver import Driver
from tamis.backends.cluster.placing.started import StartedAgent, node_name

LEASE_S = 10.0
_LOOK_S = 0.5
_MAX_FAILED = 20


class LeaseHolder:
    """Holds the agent of its process, and works off leases. Made in the main thread; `work` may be called in another.

    `on_loss` is called when the agent was killed or failed, whether there is a lease at that moment or not; without it the leases that are left end at
    once. An agent that the driver told to leave is no loss.
    """

    def __init__(self, about: dict[str, Any], on_loss: Callable[[], object] | None = None) -> None:
        self._agent = StartedAgent(about)
        self._over = False
        if on_loss is not None:
            threading.Thread(target=_watch, args=(self._agent, on_loss), name="tamis-watch", daemon=True).start()

    def work(self, lease: int) -> dict[str, Any]:
        """Returns when the lease has run out or the agent has ended; what it says of itself is for people."""
        began_s = time.monotonic()
        status = None if self._over else self._agent.wait(LEASE_S)
        if status is not None:
            self._over = True
        return {
            "lease": lease, "node": node_name(), "agent": self._agent.pid, "seconds": round(time.monotonic() - began_s, 2),
            "over": self._over,
        }  # fmt: skip

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self._agent.end()


def repeat(
    driver: Driver,
    wish: dict[str, Any],
    what: str,
    one: Callable[[list[dict[str, Any]]], None],
    faults: type[Exception],
) -> None:
    """`one`, which is given the nodes that can be used, again and again until the driver has had enough: each ends early where its agents end, or
    fails with them (`faults`: then). `what`: whose it is, for people."""
    n_failed = 0
    while not driver.ended.is_set():
        nodes = list(usable_nodes(wish).values())
        # The actors of one pool are alike: each has what the smallest node offers.
        gpus = [min(cpus_and_gpus(n["Resources"], wish)[1] for n in nodes)] if nodes else []
        driver.tell(n_nodes=len(nodes), gpus=gpus, text=f"{what} over {len(nodes)} nodes")
        try:
            one(nodes)
        except faults as exc:
            n_failed += 1
            driver.tell(text=f"{what} ended: {type(exc).__name__}: {str(exc)[:300]}")
            if n_failed > _MAX_FAILED:
                raise
            driver.ended.wait(min(n_failed, 5))


def _watch(agent: StartedAgent, on_loss: Callable[[], object]) -> None:
    """Does not hold the holder: that must be able to go, and its agent with it."""
    while (status := agent.wait(_LOOK_S)) is None:
        pass
    if status != 0 and not agent.ended:
        on_loss()
