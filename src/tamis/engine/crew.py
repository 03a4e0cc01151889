"""What an executor provides: it starts workers, passes messages to them and on what they say, measures their memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Event:
    """Something happened to a worker: "ready", "message" (with data), "refused" (so many bytes, to map them), "unbounded" (what it does
    is watched only), "died" (with how and signal), "removed" (files that it had left in shared memory)."""

    kind: str
    worker: int
    data: dict[str, Any]


class Crew(Protocol):
    """Workers by their numbers. Messages are plain data; nothing here says on which machine a worker is."""

    def start(self, worker: int, segment: int, environment: Mapping[str, str] | None = None) -> None: ...

    def assign(self, worker: int, message: dict[str, Any], cap_bytes: int, ceiling_bytes: int) -> None: ...

    def send(self, worker: int, message: dict[str, Any]) -> None: ...

    def kill(self, worker: int) -> None: ...

    def poll(self, timeout_s: float) -> list[Event]: ...

    def measure(self) -> tuple[int, dict[int, int]]: ...
