"""Options of the executors on Ray: from `config` in the driver to the placement in its own process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tamis.backends.cluster.placement import PlacementRequest


@dataclass(frozen=True)
class RayOptions:
    """Options of a placement on Ray. An executor takes those that its `own_config` names; others have their default."""

    ignore_head_node: bool = False
    # of RayActorPoolExecutor
    runtime_env: dict[str, Any] | None = field(default_factory=dict)
    reserved_cpus: float = 0.0
    reserved_gpus: float = 0.0
    resource_wait_timeout_s: float = 5.0
    resource_wait_interval_s: float = 0.2
    # of XennaExecutor
    logging_interval: float = 60
    cpu_allocation_percentage: float = 0.95
    autoscale_interval_s: float = 180
    ignore_failures: bool = False
    execution_mode: str = "streaming"


def options_of(request: PlacementRequest) -> RayOptions:
    """Return the options of a request that RayExecutor made."""
    return RayOptions(**request.options)
