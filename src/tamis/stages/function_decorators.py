"""`processing_stage`: turns a plain function into a stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tamis.errors import UsageError
from tamis.signatures import returns_list
from tamis.sizes import is_integer
from tamis.stages.base import ProcessingStage
from tamis.stages.resources import Resources


class FunctionStage(ProcessingStage[Any, Any]):
    """A stage whose `process` is a function of the user."""

    def __init__(self, function: Callable[[Any], Any], name: str, resources: Resources, batch_size: int) -> None:
        self.function, self.name, self.resources, self.batch_size = function, name, resources, batch_size
        self.__doc__ = function.__doc__

    def process(self, task: Any) -> Any:
        return self.function(task)

    def is_fanout_stage(self) -> bool:
        """Return True if the function is annotated to return a list."""
        try:
            return returns_list(self.function)
        except (TypeError, ValueError):  # a C function without a signature
            return False

    def __call__(self, task: Any) -> Any:
        return self.function(task)


def processing_stage(
    *, name: str, resources: Resources | dict[str, float] | None = None, batch_size: int | None = None
) -> Callable[[Callable[[Any], Any]], FunctionStage]:
    """Turn `f(task)` into a stage: `@processing_stage(name="shout")`."""
    if isinstance(resources, dict):
        resources = Resources(**resources)
    if batch_size is not None and not is_integer(batch_size):
        raise UsageError(f"processing_stage(batch_size=...): expected a whole number of at least 1, got {batch_size!r}")

    def decorate(function: Callable[[Any], Any]) -> FunctionStage:
        if not callable(function):
            raise UsageError(f"@processing_stage({name!r}) decorates a function, got {type(function).__name__}")
        return FunctionStage(function, name, resources or Resources(cpus=1.0), batch_size or 1)

    return decorate
