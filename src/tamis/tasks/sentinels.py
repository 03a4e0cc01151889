"""Tasks without data: the start of a pipeline, no result, and a failure."""

from __future__ import annotations

from tamis._dataclasses import dataclass
from tamis.tasks.tasks import Task


@dataclass
class SentinelTask(Task[None]):
    """A task that says something by being there."""

    @property
    def num_items(self) -> int:
        return 0


@dataclass
class EmptyTask(SentinelTask):
    """The task that a pipeline starts with when its first stage needs no input."""

    dataset_name: str = "empty"

    def __post_init__(self) -> None:
        self.task_id = self.task_id or "0"


@dataclass
class NoneTask(SentinelTask):
    """A stage may return it instead of None: the task has no result."""

    dataset_name: str = "none"


@dataclass
class FailedTask(SentinelTask):
    """A stage may return it for a task that it gave up. Runs count such tasks and leave them out of their results."""

    dataset_name: str = "failed"
