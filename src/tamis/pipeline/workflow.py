"""Workflows: several passes in one `run`, and their result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from tamis._dataclasses import dataclass
from tamis.tasks import Task


@dataclass
class WorkflowRunResult:
    """The result of a workflow: the tasks of each of its pipelines, and figures by name."""

    workflow_name: str = ""
    pipeline_tasks: dict[str, list[Task[Any]]] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)

    def add_pipeline_tasks(self, pipeline_name: str, tasks: Sequence[Task[Any]] | None) -> None:
        self.pipeline_tasks[pipeline_name] = list(tasks or ())

    def add_metadata(self, key: str, value: Any) -> None:
        self.metadata[key] = value

    def extend_metadata(self, updates: Mapping[str, Any] | None = None) -> None:
        self.metadata.update(updates or {})

    def get_metadata(self, key: str, default: Any = None) -> Any:
        return self.metadata.get(key, default)


class WorkflowBase(ABC):
    """Several passes with one `run` that returns a WorkflowRunResult."""

    @abstractmethod
    def run(self, *args: Any, **kwargs: Any) -> WorkflowRunResult:
        """Run all passes; the same call again resumes an interrupted run."""
