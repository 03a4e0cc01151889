"""Agents on this machine, started by a test as an actor would start them: a cluster without Ray."""

from __future__ import annotations

from typing import Any

from tamis.backends.base import BaseExecutor
from tamis.backends.cluster.hub import Hub
from tamis.backends.cluster.placing.started import StartedAgent
from tamis.backends.cluster.remote_workers import RemoteWorkers
from tamis.backends.cluster.session import Session, Wish
from tamis.engine.job import gpus_needed
from tamis.engine.worker.config import WorkerConfig

BUDGET = 4_000_000_000  # an agent counts who started it: this whole pytest, with all that other tests made it import


class HereSession(Session):
    """A session whose agents are started by the test, not by Ray."""

    def __init__(self, n_agents: int, declared_bytes: int = 0) -> None:
        """`declared_bytes`: the memory that Ray would declare for each node; 0: none."""
        super().__init__(Wish("nobody"))
        self.n_expected, self.declared_bytes = n_agents, declared_bytes
        self.agents: list[StartedAgent] = []

    def start(self, wake: Any) -> None:
        if self._hub is None:
            self._hub = Hub("127.0.0.1")
            for i in range(self.n_expected):
                self.add_agent(f"node {i}")
        self._hub.on_arrival = wake

    def add_agent(self, name: str) -> None:
        assert self._hub is not None
        facts = {
            "host": "127.0.0.1", "port": self._hub.port, "token": self._hub.token, "n_cpus": 1, "name": name,
            "declared_bytes": self.declared_bytes,
        }  # fmt: skip
        self.agents.append(StartedAgent(facts))

    def close(self) -> None:
        super().close()
        for agent in self.agents:
            agent.end()


class HereExecutor(BaseExecutor):
    is_cluster = True

    def __init__(self, session: HereSession) -> None:
        super().__init__({"memory": str(BUDGET)})
        self.session = session

    def make_workers(self, job: Any, config: WorkerConfig, log_path: str, count_caller: bool) -> RemoteWorkers:
        import cloudpickle

        return RemoteWorkers(
            self.session,
            cloudpickle.dumps(job),
            config,
            log_path,
            count_caller,
            job.kernel_groups(),
            BUDGET,
            {stage.name: gpus_needed(stage) for stage in job.stages},
        )
