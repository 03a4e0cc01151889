"""What the executors of a cluster have in common: a session, and workers that are reached through it."""

from __future__ import annotations

import contextlib
import os
import sys
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from tamis.backends.base import BaseExecutor
from tamis.backends.cluster.head import HeadOptions
from tamis.backends.cluster.remote_workers import RemoteWorkers
from tamis.backends.cluster.session import Session, Wish
from tamis.engine.job import Job, gpus_needed
from tamis.engine.monitor.monitor import Watch
from tamis.engine.run.run_result import Progress
from tamis.engine.worker.config import WorkerConfig
from tamis.files import Closing
from tamis.memory.budget import find_budget

ADDRESS_VARIABLE = "RAY_ADDRESS"


class ClusterExecutor(BaseExecutor, Closing):
    """Workers on every node of a Ray cluster, inside a budget of `memory` on each. Use it for several runs, then `close()` it, or use `with`.

    `address`: of a running cluster (HOST:PORT, or "auto"). Without: the one that ray.init() or a RayClient began in this program, else the one that
    RAY_ADDRESS names, else one of its own on this machine, which ends with the executor.
    `ignore_head_node`: no workers on the node where the cluster's own processes are (if there are others).
    """

    how = "actors"
    is_cluster = True

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        ignore_head_node: bool = False,
        *,
        address: str | None = None,
        progress: Progress | None = None,
        watch: Watch | None = None,
        report: bool = True,
    ) -> None:
        super().__init__(config, progress, watch, report)
        self.address, self.ignore_head_node = address, ignore_head_node
        self._session: Session | None = None
        self._ending: Callable[[], object] = lambda: None

    def make_workers(self, job: Job, config: WorkerConfig, log_path: str, count_caller: bool) -> RemoteWorkers:
        import cloudpickle

        budget_bytes = config.budget_bytes or find_budget(None, os.environ).bytes
        if self._session is None:
            session = self._session = Session(self._wish(budget_bytes), self._head_options(budget_bytes))
            self._ending = weakref.finalize(self, session.close)
        return RemoteWorkers(
            self._session,
            cloudpickle.dumps(job),
            config,
            log_path,
            count_caller,
            job.kernel_groups(),
            budget_bytes,
            {stage.name: gpus_needed(stage) for stage in job.stages},
        )

    def close(self) -> None:
        """End what it started: agents, and the cluster if it is its own. A later run starts them again."""
        self._ending()
        self._session = None

    def settings(self) -> dict[str, Any]:
        made = super().settings()
        return {"quarantine_limit": "100%", **made} if self.config.get("ignore_failures") else made

    def _options(self) -> dict[str, Any]:
        """Return the additional options for the placement backend (placing/)."""
        own = {key: self.config.get(key, default) for key, default in self.own_config.items()}
        return {"ignore_head_node": self.ignore_head_node, **own}

    def _head_options(self, budget_bytes: int) -> HeadOptions:
        """Return the options for the head of our own cluster: all cores, like the local executor."""
        return HeadOptions(num_cpus=len(os.sched_getaffinity(0)), memory_bytes=budget_bytes)

    def _wish(self, budget_bytes: int) -> Wish:
        return Wish(
            self.how, self.address or begun_here() or os.environ.get(ADDRESS_VARIABLE, ""), memory_bytes=budget_bytes,
            options=self._options(),
        )  # fmt: skip


def begun_here() -> str:
    """Return the address of the cluster that ray.init() started or joined in this program; "" if it did not.

    Does not import Ray.
    """
    ray = sys.modules.get("ray")
    with contextlib.suppress(Exception):
        if ray is not None and ray.is_initialized():
            return str(ray.get_runtime_context().gcs_address)
    return ""
