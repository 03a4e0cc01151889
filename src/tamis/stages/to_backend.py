"""ToBackend: a mark in a pipeline where earlier releases of the original moved documents between CPU and GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tamis.errors import UsageError
from tamis.stages.base import ProcessingStage

BACKENDS = ("pandas", "cudf")


@dataclass(repr=False)
class ToBackend(ProcessingStage[Any, Any]):
    """Passes documents on as they are: a stage that computes on a GPU moves there what it needs, and takes it back.

    `backend`: "pandas" or "cudf".
    """

    backend: str
    name: str = "to_backend"

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise UsageError(f"ToBackend: expected 'pandas' or 'cudf', got {self.backend!r}")

    def process(self, task: Any) -> Any:
        return task
