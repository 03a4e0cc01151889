"""RayDataExecutor: leases stream through a Ray Data pipeline, whose actors hold workers on every node."""

from __future__ import annotations

from tamis.backends.ray_cluster.executor import RayExecutor


class RayDataExecutor(RayExecutor):
    """Ray Data places, restarts and shows the actors.

    Each row of its data is a lease: a share of the work, done by the workers of one node.

    `config`, in addition to what every executor takes: `ignore_failures` (documents that fail are quarantined, however
    many they are).
    """

    name = "ray_data"
    placement = "tamis.backends.ray_cluster.data_placement:DataPlacement"
    own_config = ("ignore_failures",)
