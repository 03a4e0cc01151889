"""Where a stage runs: what `setup_on_node` and `setup` are handed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class NodeInfo:
    """A machine."""

    node_id: str = ""


@dataclass
class WorkerMetadata:
    """A worker on it. `allocation`: what an executor gave it, in the executor's own words; None for the local one."""

    worker_id: str = ""
    allocation: Any = None
