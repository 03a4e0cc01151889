"""Tasks without data."""

from __future__ import annotations

from dataclasses import dataclass

from tamis.tasks.tasks import Task


@dataclass
class EmptyTask(Task[None]):
    """Where a pipeline starts when its first stage needs no input."""

    def __post_init__(self) -> None:
        self.task_id = "0"
