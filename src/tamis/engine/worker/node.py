"""The description of node and worker that `setup_on_node` and `setup` receive."""

from __future__ import annotations

import platform
from typing import Any

from tamis._dataclasses import dataclass


@dataclass
class NodeInfo:
    """A machine."""

    node_id: str = ""


def this_node() -> NodeInfo:
    """Return the machine that this process runs on."""
    return NodeInfo(platform.node())


@dataclass
class WorkerMetadata:
    """A worker on it. `allocation`: what an executor gave it, in the executor's own words; None for the local one."""

    worker_id: str = ""
    allocation: Any = None
