"""ClusterExecutor, the base of executors that run agents on the nodes of a cluster, whatever engine starts them."""

from __future__ import annotations

import os
import weakref
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from tamis.backends.base import BaseExecutor
from tamis.backends.cluster.remote_workers import RemoteJob, RemoteWorkers
from tamis.backends.cluster.session import Cluster, Session
from tamis.backends.registry import check_installed
from tamis.engine.job import Job
from tamis.engine.monitor.monitor import Watch
from tamis.engine.progress import Progress
from tamis.engine.worker.config import WorkerConfig
from tamis.files import Closing
from tamis.memory.budget import find_budget


class ClusterExecutor(BaseExecutor, Closing):
    """Workers on every node of a cluster, inside a budget of `memory` on each.

    A subclass names its placement and describes its cluster: the seam for further cluster engines (CONTRIBUTING.md, Add
    an executor), of which Ray is the one that ships. Use an executor for several runs, then `close()` it, or
    use `with`.
    """

    name = ""  # in the registry of executors
    placement = ""  # "module:class" of the Placement (cluster/placement.py)
    is_cluster = True

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        address: str | None = None,
        progress: Progress | None = None,
        watch: Watch | None = None,
        report: bool = True,
    ) -> None:
        super().__init__(config, progress, watch, report)
        self.address = address
        self._session: Session | None = None
        self._finalizer: Callable[[], object] = lambda: None

    @abstractmethod
    def cluster(self, budget_bytes: int) -> Cluster:
        """Return the cluster to run on, not started yet."""

    def placement_options(self) -> dict[str, Any]:
        """Return the options for the placement, as JSON values."""
        return {}

    def make_workers(self, job: Job, config: WorkerConfig, log_path: str, count_caller: bool) -> RemoteWorkers:
        budget_bytes = config.budget_bytes or find_budget(None, os.environ).bytes
        if self._session is None:
            if self.name:
                check_installed(self.name)
            cluster = self.cluster(budget_bytes)
            session = self._session = Session(cluster, self.placement, budget_bytes, self.placement_options())
            self._finalizer = weakref.finalize(self, session.close)
        return RemoteWorkers(self._session, RemoteJob.of(job), config, log_path, count_caller, budget_bytes)

    def close(self) -> None:
        """End agents, and the cluster if the executor started it. A later run starts them again."""
        self._finalizer()
        self._session = None

    def settings(self) -> dict[str, Any]:
        settings = super().settings()
        return {"quarantine_limit": "100%", **settings} if self.config.get("ignore_failures") else settings
