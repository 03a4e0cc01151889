"""What an executor provides: it starts workers, passes messages to them and on what they say, measures their memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tamis.engine.messages import Assign, News, Order


@dataclass(frozen=True)
class Server:
    """The forking server that workers come from (and the process it was forked from) when everything is loaded."""

    own_bytes: int  # private memory
    anon_bytes: int  # of which a worker may copy a part
    peak_bytes: int  # resident at most while loading
    n_cores: int = 0  # of its machine; 0: this one
    others_bytes: int = 0  # on another machine: whatever else of ours is there


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
    """Workers by their numbers. Messages are plain data (messages.py). Where there are several machines, `node` is the one to start on."""

    def start(self, worker: int, segment: int, environment: Mapping[str, str] | None = None, node: int = 0) -> None: ...

    def assign(self, worker: int, message: Assign, cap_bytes: int, ceiling_bytes: int) -> None: ...

    def send(self, worker: int, message: Order) -> None: ...

    def kill(self, worker: int) -> None: ...

    def poll(self, timeout_s: float) -> list[Event]: ...

    def measure(self) -> Mapping[int, tuple[int, dict[int, int]]]:
        """By node (this machine alone is number 0): bytes in use there, and by worker. What has not been measured anew is left out."""
        ...
