"""RayDataExecutor: leases stream through a Ray Data pipeline, whose actors hold workers on every node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tamis.backends.cluster.executor import ClusterExecutor


class RayDataExecutor(ClusterExecutor):
    """Ray Data places, restarts and shows the actors. Each row of its data is a lease: a share of the work, done by the workers of one node.

    `config`, beside what every executor takes: `ignore_failures` (documents that fail are set aside, however many they are).
    """

    how = "data"
    own_config: Mapping[str, Any] = {"ignore_failures": False}
