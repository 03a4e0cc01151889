"""The base class of tasks: what a stage takes and returns, whatever kind of data it carries."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Generic, TypeVar

from tamis._dataclasses import dataclass

T = TypeVar("T")


@dataclass
class Task(Generic[T]):
    """A unit of data that a stage takes and returns."""

    dataset_name: str = ""
    data: T = None  # type: ignore[assignment]
    _stage_perf: list[Any] = field(default_factory=list, repr=False)
    _metadata: dict[str, Any] = field(default_factory=dict, repr=False)
    task_id: str = field(default="", kw_only=True)

    @property
    def num_items(self) -> int:
        return 1 if self.data is not None else 0

    def validate(self) -> bool:
        return True

    def add_stage_perf(self, perf_stats: Any) -> None:
        self._stage_perf.append(perf_stats)

    def get_columns(self) -> list[str]:
        return []

    def get_deterministic_id(self) -> str | None:
        """Return a name that identifies the contents of the task, the same in every run; None: there is none."""
        return None

    def get_source_id(self) -> str:
        """Return the task at the start of the pipeline that this one comes from: its id up to the first dot."""
        return self.task_id.partition(".")[0]

    def _set_task_id(self, task_id: str) -> None:
        self.task_id = task_id
