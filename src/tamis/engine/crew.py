"""What an executor provides: it starts workers, passes messages to them and on what they say, measures their memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tamis.engine.messages import Assign, News, Order


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


Event = Said | Died | Noticed


class Crew(Protocol):
    """Workers by their numbers. Messages are plain data (messages.py); nothing here says on which machine a worker is."""

    def start(self, worker: int, segment: int, environment: Mapping[str, str] | None = None) -> None: ...

    def assign(self, worker: int, message: Assign, cap_bytes: int, ceiling_bytes: int) -> None: ...

    def send(self, worker: int, message: Order) -> None: ...

    def kill(self, worker: int) -> None: ...

    def poll(self, timeout_s: float) -> list[Event]: ...

    def measure(self) -> tuple[int, dict[int, int]]: ...
