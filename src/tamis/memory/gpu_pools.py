"""Memory pools of a process that works on a GPU: RMM's where that is installed, else the limits of torch and CuPy.

Called in the process itself.
"""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from typing import Any

from tamis.memory.device_limits import CONTEXT_BYTES, DeviceLimit, limit_cupy, limit_torch

_ALIGNED = 256  # RMM takes multiples of it


@dataclass(frozen=True)
class Pools:
    """`initial_bytes`: of a pool of RMM. `limit_bytes`: what this process may take of its GPU (0: all there is)."""

    initial_bytes: int = 1 << 30
    limit_bytes: int = 0
    release_bytes: int = 0
    is_async: bool = True
    is_managed: bool = False
    torch_uses_it: bool = False
    spills: bool = True

    def set_up(self) -> list[str]:
        """Set up what is installed; returns what it was, for the log."""
        if not _is_installed("rmm"):
            return self._limit_libraries()
        done = [self._set_up_rmm(importlib.import_module("rmm"))]
        if _is_installed("cudf") and self.spills:
            importlib.import_module("cudf").set_option("spill", True)
            done.append("cuDF spills")
        return done

    def _set_up_rmm(self, rmm: Any) -> str:
        most = (self.limit_bytes - CONTEXT_BYTES) // _ALIGNED * _ALIGNED if self.limit_bytes > CONTEXT_BYTES else None
        initial = self.initial_bytes // _ALIGNED * _ALIGNED or None
        if most is not None and initial is not None:
            initial = min(initial, most)
        if self.is_async and not self.is_managed:
            threshold = self.release_bytes or None
            resource = rmm.mr.CudaAsyncMemoryResource(initial_pool_size=initial, release_threshold=threshold)
            if most is not None:  # the driver's own pool knows no upper limit
                resource = rmm.mr.LimitingResourceAdaptor(resource, allocation_limit=most)
            rmm.mr.set_current_device_resource(resource)
        else:
            rmm.reinitialize(
                pool_allocator=True, managed_memory=self.is_managed, initial_pool_size=initial, maximum_pool_size=most
            )
        if _is_installed("cupy"):
            cupy = importlib.import_module("cupy")
            cupy.cuda.set_allocator(importlib.import_module("rmm.allocators.cupy").rmm_cupy_allocator)
        if self.torch_uses_it:
            torch = importlib.import_module("torch")
            allocator = importlib.import_module("rmm.allocators.torch").rmm_torch_allocator
            torch.cuda.memory.change_current_allocator(allocator)
        return "a pool of RMM"

    def _limit_libraries(self) -> list[str]:
        limit = DeviceLimit(1.0, self.limit_bytes)
        if not limit.is_limited:
            return []
        done = []
        for name, set_limit in (("torch", limit_torch), ("cupy", limit_cupy)):
            if _is_installed(name):
                set_limit(importlib.import_module(name), limit)
                done.append(f"the limit of {name}")
        return done


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
