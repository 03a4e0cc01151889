"""XennaExecutor: a Cosmos Xenna pipeline, whose stage holds workers on every node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tamis.backends.ray_cluster.executor import RayExecutor
from tamis.backends.ray_cluster.head import HeadOptions
from tamis.errors import UsageError
from tamis.sizes import check_seconds, is_number


class XennaExecutor(RayExecutor):
    """Xenna places one worker of its stage on every node; ours work below it.

    `config`, in addition to what every executor takes: `logging_interval` (seconds between Xenna's reports, in the log
    of the run), `ignore_failures` (documents that fail are quarantined, however many they are), `execution_mode`
    ("streaming" or "batch", for Xenna and for the stages), `cpu_allocation_percentage` (of every node's cores, for
    workers; at least one), `autoscale_interval_s`. A pipeline whose stages ask for more CPUs than there are runs with
    what there is.
    """

    name = "xenna"
    placement = "tamis.backends.ray_cluster.xenna_placement:XennaPlacement"
    own_config: Mapping[str, Any] = {
        "logging_interval": 60,
        "ignore_failures": False,
        "cpu_allocation_percentage": 0.95,
        "autoscale_interval_s": 180,
    }

    def __init__(self, config: Mapping[str, Any] | None = None, ignore_head_node: bool = False, **options: Any) -> None:
        if ignore_head_node:
            raise ValueError("XennaExecutor: Xenna uses every node; ignore_head_node is for the other executors")
        super().__init__(config, ignore_head_node, **options)
        own = self.placement_options()
        if not is_number(own["cpu_allocation_percentage"]) or not 0 < own["cpu_allocation_percentage"] <= 1:
            raise UsageError(
                "cpu_allocation_percentage: expected a share above 0 and up to 1, got "
                f"{own['cpu_allocation_percentage']!r}"
            )
        for key in ("logging_interval", "autoscale_interval_s"):
            check_seconds(own[key], key)

    def placement_options(self) -> dict[str, Any]:
        return {**super().placement_options(), "execution_mode": self.config.get("execution_mode", "streaming")}

    def head_options(self, budget_bytes: int) -> HeadOptions:
        """Return the options of a head with the API server, which is part of the dashboard and which Xenna asks."""
        return replace(super().head_options(budget_bytes), dashboard=True)
