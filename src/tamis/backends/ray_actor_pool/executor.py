"""RayActorPoolExecutor: plain Ray actors, one on every node, each with workers below it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tamis.backends.ray_cluster.executor import RayExecutor
from tamis.errors import UsageError
from tamis.sizes import check_amount, check_seconds


class RayActorPoolExecutor(RayExecutor):
    """Ray places one actor on every node and replaces those that die; nodes may join and leave during a run.

    `config`, in addition to what every executor takes: `reserved_cpus` and `reserved_gpus` (of every node, left to
    others), `runtime_env` (env_vars for the actors), `resource_wait_timeout_s` (how long CPUs that others hold are
    waited for; then the actor does without), and `resource_wait_interval_s` (how often nodes are looked at).
    `show_progress`: a line while it runs, every `progress_interval` seconds at most.
    """

    name = "ray"
    placement = "tamis.backends.ray_cluster.actor_placement:ActorPlacement"
    own_config = (
        "runtime_env",
        "reserved_cpus",
        "reserved_gpus",
        "resource_wait_timeout_s",
        "resource_wait_interval_s",
    )

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        ignore_head_node: bool = False,
        show_progress: bool = True,
        progress_interval: float = 10.0,
        **options: Any,
    ) -> None:
        super().__init__(config, ignore_head_node, **options)
        self.show_progress, self.progress_interval = show_progress, progress_interval
        check_seconds(progress_interval, "progress_interval")
        own = self.ray_options()
        for key in ("reserved_cpus", "reserved_gpus", "resource_wait_timeout_s"):
            check_amount(getattr(own, key), key)
        check_seconds(own.resource_wait_interval_s, "resource_wait_interval_s")
        env = own.runtime_env or {}
        if set(env) - {"env_vars"}:
            raise UsageError(
                f"runtime_env: only env_vars is known here, got {sorted(env)}; install what stages need on every node"
            )
