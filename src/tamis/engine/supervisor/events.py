"""Events of the supervisor: what can happen in a run.

Every event is handled by `Supervisor.handle` and answered with actions.

Messages of workers and their deaths (`Received`, `Died`) are those of workers_interface.py, commits (`Committed`) those
of actions.py.
"""

from __future__ import annotations

from typing import NamedTuple

from tamis._dataclasses import dataclass
from tamis.engine.supervisor.actions import Committed
from tamis.engine.supervisor.state import NodeSpec
from tamis.engine.workers_interface import Died, Received


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


class MemoryMeasured(NamedTuple):
    """The meter of a node measured its memory."""

    used_bytes: int
    per_worker: dict[int, int]
    node: int = 0


class NodeJoined(NamedTuple):
    """A node has joined (again), with what it may use."""

    spec: NodeSpec


class NodeLost(NamedTuple):
    """A node is gone, with all of its workers."""

    node: int


class AlertFired(NamedTuple):
    """An alert orders something (alert_orders.py)."""

    order: str


class StopRequested(NamedTuple):
    """The run is to end early; what is committed is kept."""

    why: str


Event = Tick | Received | Died | MemoryMeasured | Committed | NodeJoined | NodeLost | AlertFired | StopRequested
