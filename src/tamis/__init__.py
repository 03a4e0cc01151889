"""Tamis curates text corpora of any size inside the memory you give it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tamis import memory
    from tamis.backends.local import InProcessExecutor, LocalExecutor
    from tamis.errors import TamisError
    from tamis.pipeline import Pipeline, Sequential
    from tamis.secrets import Secret
    from tamis.stages.base import CompositeStage, ProcessingStage
    from tamis.stages.function_decorators import processing_stage
    from tamis.stages.resources import Resources
    from tamis.stages.to_backend import ToBackend
    from tamis.tasks import DocumentBatch, EmptyTask, FileGroupTask, Task

__version__ = "0.1.0"

_MODULE_OF = {
    "CompositeStage": "tamis.stages.base",
    "DocumentBatch": "tamis.tasks",
    "EmptyTask": "tamis.tasks",
    "FileGroupTask": "tamis.tasks",
    "InProcessExecutor": "tamis.backends.local",
    "LocalExecutor": "tamis.backends.local",
    "Pipeline": "tamis.pipeline",
    "ProcessingStage": "tamis.stages.base",
    "Resources": "tamis.stages.resources",
    "Secret": "tamis.secrets",
    "Sequential": "tamis.pipeline",
    "TamisError": "tamis.errors",
    "Task": "tamis.tasks",
    "ToBackend": "tamis.stages.to_backend",
    "processing_stage": "tamis.stages.function_decorators",
}

__all__ = [
    "CompositeStage",
    "DocumentBatch",
    "EmptyTask",
    "FileGroupTask",
    "InProcessExecutor",
    "LocalExecutor",
    "Pipeline",
    "ProcessingStage",
    "Resources",
    "Secret",
    "Sequential",
    "TamisError",
    "Task",
    "ToBackend",
    "__version__",
    "memory",
    "processing_stage",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import tamis` and `tamis --help` stay cheap."""
    import importlib

    if name == "memory":
        return importlib.import_module("tamis.memory")
    if name in _MODULE_OF:
        return getattr(importlib.import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module 'tamis' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


class _NemoHints:
    """The last finder on `sys.meta_path`: say what to use instead of a module of NeMo Curator that Tamis lacks."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name.startswith("tamis."):
            from tamis._nemo_hints import module_exists, suggest_replacement

            if not module_exists(name) and (replacement := suggest_replacement(name)):
                raise ModuleNotFoundError(f"{name} is not part of Tamis: {replacement}", name=name)


sys.meta_path.append(_NemoHints)
