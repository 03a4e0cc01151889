"""What an executor provides: `Workers`, through which the engine starts worker processes, talks to them and measures their memory.

Made by an executor (`make_workers`), used by the loop of a run (run/drive.py), which knows nothing else of processes and machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tamis.engine.messages import Assign, News, Order


@dataclass(frozen=True)
class Server:
    """The memory of the process that workers are forked from (and of the one that was forked from), when everything is loaded."""

    own_bytes: int  # private memory
    anon_bytes: int  # of which a worker may copy a part
    peak_bytes: int  # resident at most while loading
    n_cores: int = 0  # of its machine; 0: this one
    others_bytes: int = 0  # on another machine: whatever else of ours is there
    stages_bytes: int = 0  # of the peak, what loading the stages added


@dataclass(frozen=True)
class Said:
    """A worker said something."""

    worker: int
    message: News


@dataclass(frozen=True)
class Died:
    """A worker is gone, from within `stage`: `how` in words, and the signal that ended it (0: none)."""

    worker: int
    how: str
    signal: int = 0
    stage: str = ""


@dataclass(frozen=True)
class Noticed:
    """Something about a worker that goes into the log of events: "refused" (memory to map), "unbounded" (what it does is watched
    only), "removed" (files that it had left in shared memory)."""

    worker: int
    kind: str
    text: str
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class NodeUp:
    """A node has joined: what its forking server and whatever else is there take, the memory that the machine has, the budget that it would have
    by itself, its GPUs. Its number is new: a node that was away comes as another."""

    node: int
    name: str
    server: Server
    limit_bytes: int
    default_bytes: int
    devices: tuple[str, ...] = ()


@dataclass(frozen=True)
class NodeDown:
    """A node is gone with all its workers, which are not told of one by one."""

    node: int
    name: str
    why: str


Event = Said | Died | Noticed | NodeUp | NodeDown


class Workers(Protocol):
    """Worker processes, each named by a number that the supervisor chooses. Messages are plain data (messages.py)."""

    def start(self, worker: int, segment: int, environment: Mapping[str, str] | None = None, node: int = 0) -> None:
        """Start a worker for a segment of the stages; `environment`: variables that it has besides; `node`: the machine to start it on."""

    def assign(self, worker: int, message: Assign, cap_bytes: int, ceiling_bytes: int) -> None:
        """Set its memory cap, then give it a unit to work on. Above the ceiling, with all that it started, it is stopped."""

    def send(self, worker: int, message: Order) -> None:
        """Pass any other order on: the size of the next block, give memory back, exit."""

    def kill(self, worker: int) -> None:
        """End it at once; `poll` then tells that it died."""

    def poll(self, timeout_s: float) -> list[Event]:
        """Return what has happened since the last call, waiting at most `timeout_s` for something to happen."""
        ...

    def measure(self) -> Mapping[int, tuple[int, dict[int, int]]]:
        """By node (this machine alone is number 0): bytes in use there, and by worker. What has not been measured anew is left out."""
        ...
