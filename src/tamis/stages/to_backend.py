"""ToBackend: makes `batch.data` of the stages that follow a cuDF frame on the GPU, a pandas frame, or an Arrow table.

It concerns only stages that read `batch.data`. Built-in stages read columns, and move to a GPU what they compute there;
so nothing is copied to a device and back for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tamis.errors import UsageError
from tamis.stages.base import ProcessingStage
from tamis.tasks import DocumentBatch

BACKENDS = ("pandas", "cudf", "pyarrow")


@dataclass(repr=False)
class ToBackend(ProcessingStage[Any, Any]):
    """Sets the library of `batch.data`: "cudf" (a frame on the GPU of the worker), "pandas" or "pyarrow".

    Documents do not change; changes of such a frame are traced to them as with any other.
    """

    backend: str
    name: str = "to_backend"

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise UsageError(f"ToBackend: expected one of {', '.join(map(repr, BACKENDS))}, got {self.backend!r}")

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        """Check that the library is installed before any worker starts.

        Do not load it, because CUDA does not survive a fork.
        """
        import importlib.util
        import sys

        if self.backend == "cudf" and "cudf" not in sys.modules and importlib.util.find_spec("cudf") is None:
            from tamis.tasks.frames import NO_CUDF

            raise UsageError(NO_CUDF)

    def process(self, task: Any) -> Any:
        return task.with_frames(self.backend) if isinstance(task, DocumentBatch) else task
