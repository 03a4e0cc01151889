"""XennaExecutor: a Cosmos Xenna pipeline, whose stage holds workers on every node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tamis.backends.ray_cluster.executor import RayExecutor
from tamis.backends.ray_cluster.head import HeadOptions
from tamis.backends.ray_cluster.options import RayOptions
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
    own_config = ("logging_interval", "ignore_failures", "cpu_allocation_percentage", "autoscale_interval_s")

    def __init__(self, config: Mapping[str, Any] | None = None, ignore_head_node: bool = False, **options: Any) -> None:
        if ignore_head_node:
            raise ValueError("XennaExecutor: Xenna uses every node; ignore_head_node is for the other executors")
        super().__init__(config, ignore_head_node, **options)
        own = self.ray_options()
        share = own.cpu_allocation_percentage
        if not is_number(share) or not 0 < share <= 1:
            raise UsageError(f"cpu_allocation_percentage: expected a share above 0 and up to 1, got {share!r}")
        check_seconds(own.logging_interval, "logging_interval")
        check_seconds(own.autoscale_interval_s, "autoscale_interval_s")

    def ray_options(self) -> RayOptions:
        return replace(super().ray_options(), execution_mode=self.config.get("execution_mode", "streaming"))

    def head_options(self, budget_bytes: int) -> HeadOptions:
        """Return the options of a head with the API server, which is part of the dashboard and which Xenna asks."""
        return replace(super().head_options(budget_bytes), dashboard=True)
