"""Grants resources to workers: the configuration of the supervisor, and the share of a node that joins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tamis.engine.run.budget.gpus import share_gpus
from tamis.engine.run.budget.shares import USABLE, BudgetShares, share_budget
from tamis.engine.run.inputs import DEFAULT_PARTITION_BYTES
from tamis.engine.run.planning import ExecutionContext
from tamis.engine.run.settings import SettingsLog
from tamis.engine.schema import EventKind
from tamis.engine.supervisor.devices import fixed_workers
from tamis.engine.supervisor.state import Config, NodeSpec
from tamis.engine.workers_interface import NodeUp
from tamis.errors import BudgetError
from tamis.memory.budget import Budget
from tamis.memory.machine import filesystem, free_bytes
from tamis.sizes import format_size, parse_size

_UNBOUNDED_PARTITION_BYTES = 1 << 40  # where the user chose how many files form a partition
_PATIENT_QUEUES = 16


class Admission:
    """Divides the budget of one run among its workers, here or on nodes.

    `refusal`: why the last node that joined was refused.
    """

    def __init__(self, context: ExecutionContext, observe: Callable[[EventKind, Mapping[str, Any]], None]) -> None:
        self._context, self._observe = context, observe
        self.refusal: BudgetError | None = None

    def config(self, budget: Budget, shares: BudgetShares, is_remote: bool) -> Config:
        """Return the resources and limits of the supervisor."""
        job, inputs, settings = self._context.job, self._context.inputs, self._context.settings
        partition_bytes = inputs.partition_bytes or DEFAULT_PARTITION_BYTES
        if inputs.files_per_partition:
            partition_bytes = _UNBOUNDED_PARTITION_BYTES
        gpus = share_gpus(job, settings, self._context.record, is_remote)
        queue_bytes = parse_size(settings.queue)
        return Config(
            budget_bytes=budget.bytes,
            pool_bytes=shares.pool_bytes,
            worker_bytes=shares.worker_bytes,
            n_slots=shares.n_workers,
            fixed_workers=fixed_workers([s.n_workers for s in job.segments], gpus.shares, len(gpus.devices)),
            cpus=[s.resources.cpus for s in job.segments],
            gpus=gpus.shares,
            devices=[] if is_remote else gpus.devices,
            gpu_bytes=gpus.limit_bytes,
            gpu_overflow=settings.gpu_overflow,
            mode=settings.mode,
            max_partition_bytes=partition_bytes,
            whole_file_bytes=inputs.whole_file_bytes,
            bounded_in_time=not inputs.partition_bytes and not inputs.files_per_partition,
            queue_bytes=queue_bytes,
            patient_queue_bytes=_patient_queue(queue_bytes, self._context.dir.scratch),
            timeout_s=settings.timeout,
            quarantine_share=settings.quarantine_share,
            quarantine_floor=settings.quarantine_floor,
            fail_fast=settings.fail_fast,
            usable=USABLE,
            shared_bytes=shares.shared_bytes,
            has_setup=[job.sets_up(s) for s in job.segments],
            in_all=[s.in_all for s in job.segments],
            nodes=[] if is_remote else None,
        )

    def admit(self, up: NodeUp, config: Config) -> NodeSpec | None:
        """Return what a node that joins may use: the budget of the run, as far as the machine has it.

        Return None if the node is too small to take part.
        """
        job, settings = self._context.job, self._context.settings
        is_chosen = settings.memory is not None
        budget_bytes = min(config.budget_bytes, up.limit_bytes) if is_chosen else up.default_bytes
        try:
            shares = share_budget(budget_bytes, up.server, settings, SettingsLog(), job)
        except BudgetError as exc:
            text = f"node {up.name} cannot take part: {exc}"
            if budget_bytes < config.budget_bytes:
                text += (
                    f". It has {format_size(budget_bytes)}: no more is there, or declared to the cluster (of Ray: "
                    "ray start --memory, ray.init(_memory=...))"
                )
            self._observe(EventKind.NODE, {"text": text, "node": up.name, "up": False})
            self.refusal = BudgetError(text, exc.smallest_bytes)
            return None
        self.refusal = None
        requested = [s.n_workers for s in job.segments]
        return NodeSpec(
            up.node,
            up.name,
            budget_bytes,
            shares.pool_bytes,
            shares.worker_bytes,
            shares.n_workers,
            shares.shared_bytes,
            up.devices,
            tuple(fixed_workers(requested, config.gpus or [], len(up.devices))),
        )


def _patient_queue(queue_bytes: int, scratch: str) -> int:
    """Return the queue size for a feeder that must decode its file again whenever it is interrupted.

    It is larger than `queue_bytes` if scratch is not stored in memory.
    """
    if filesystem(scratch) in ("tmpfs", "ramfs"):
        return queue_bytes
    return max(queue_bytes, min(queue_bytes * _PATIENT_QUEUES, (free_bytes([scratch]) or 0) // 8))
