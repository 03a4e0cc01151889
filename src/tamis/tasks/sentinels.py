"""Tasks without data: where a pipeline starts, and what stands for nothing or for a failure."""

from __future__ import annotations

from dataclasses import dataclass

from tamis.tasks.tasks import Task


@dataclass
class SentinelTask(Task[None]):
    """A task that says something by being there."""

    @property
    def num_items(self) -> int:
        return 0


@dataclass
class EmptyTask(SentinelTask):
    """Where a pipeline starts when its first stage needs no input."""

    dataset_name: str = "empty"

    def __post_init__(self) -> None:
        self.task_id = self.task_id or "0"


@dataclass
class NoneTask(SentinelTask):
    """What a stage may return instead of None: nothing comes of the task."""

    dataset_name: str = "none"


@dataclass
class FailedTask(SentinelTask):
    """What a stage may return for a task that it gave up. Runs count such tasks and leave them out of their results."""

    dataset_name: str = "failed"
