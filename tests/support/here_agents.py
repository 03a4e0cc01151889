"""Agents on this machine, started by a test as an actor would start them: a cluster without Ray."""

from __future__ import annotations

from typing import Any

from tamis.backends.base import BaseExecutor
from tamis.backends.cluster.agent_spec import AgentSpec
from tamis.backends.cluster.hub import Hub
from tamis.backends.cluster.placement import AgentProcess
from tamis.backends.cluster.remote_workers import RemoteJob, RemoteWorkers
from tamis.backends.cluster.session import ClusterEndpoint, Session
from tamis.engine.worker.config import WorkerConfig

BUDGET = 4_000_000_000  # an agent counts who started it: this whole pytest, with all that other tests made it import


class HereCluster:
    """This machine, on which a test starts agents itself."""

    is_own = False

    def start(self) -> ClusterEndpoint:
        return ClusterEndpoint("", "127.0.0.1")

    def stop(self) -> None: ...

    def advice(self) -> str:
        return "look at the test."


class HereSession(Session):
    """A session whose agents are started by the test, not by a placer."""

    def __init__(self, n_agents: int, declared_bytes: int = 0) -> None:
        """`declared_bytes`: the memory that Ray would declare for each node; 0: none."""
        super().__init__(HereCluster(), "")
        self.n_expected, self.declared_bytes = n_agents, declared_bytes
        self.agents: list[AgentProcess] = []

    def start(self, wake: Any) -> None:
        if self._hub is None:
            self._hub = Hub("127.0.0.1")
            for i in range(self.n_expected):
                self.add_agent(f"node {i}")
        self._hub.on_arrival = wake

    def add_agent(self, name: str) -> None:
        assert self._hub is not None
        spec = AgentSpec("127.0.0.1", self._hub.port, self._hub.token, 1, name, self.declared_bytes)
        self.agents.append(AgentProcess(spec))

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
        return RemoteWorkers(self.session, RemoteJob.of(job), config, log_path, count_caller, BUDGET)
