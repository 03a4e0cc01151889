"""Share GPUs among processes: the memory of each, and a lock for devices that several use.

The supervisor chooses the limit (engine/supervisor/devices.py). torch and CuPy keep their own memory, so each that is
used gets it (RMM: pools.py). What CUDA itself holds for a process (its context, code, stacks) is outside of all of
them: about CONTEXT_BYTES, which the limit leaves room for.

Two processes that compute at once gain nothing: the device switches between them, and each takes twice as long
(measured: 1,087 documents/s where one alone did 1,151). So they take turns, and one computes while the others read,
prepare and pass results on. A turn is a lock on a file in a folder of the run: it is free again when its holder dies.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tamis import files
from tamis.errors import TamisError

# Metrics of stages that run on a device.
OUT_OF_DEVICE_MEMORY = "out_of_device_memory"  # a batch did not fit, and its documents went through in smaller ones
CUT_TO_FIT = "cut_to_fit_device"  # of a document as much went through as fitted (gpu_overflow="cut")

# A folder of the run on this machine, where workers that share a device find each other (GpuLock)
LOCK_FOLDER = "TAMIS_GPU_LOCKS"
CONTEXT_BYTES = 600_000_000  # measured on an H200: 510 to 570 MB with torch's kernels loaded
HOST_BYTES = 2_000_000_000  # torch and CUDA take 0.8 GB of a process, and as much again while they start
LEAST_CONTEXT_BYTES = 450_000_000  # less before all kernels are loaded
# What CUDA's libraries say where they have no memory left; the device can still be used.
_FULL = (
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUSOLVER_STATUS_ALLOC_FAILED",
    "CUDA error: out of memory",
    "cudaErrorMemoryAllocation",
    "CUDA_ERROR_OUT_OF_MEMORY",
)
_CLASSES = {"torch.OutOfMemoryError", "torch.cuda.OutOfMemoryError"}


class DeviceMemory(TamisError):
    """A model, or one text alone in its batch, does not fit the memory of the device."""


def is_device_full(exc: BaseException) -> bool:
    """Return True if torch, a CUDA library or CuPy reports that a GPU has no memory left."""
    kind = type(exc)
    if any(f"{base.__module__}.{base.__qualname__}" in _CLASSES for base in kind.__mro__):
        return True
    if kind.__module__.partition(".")[0] == "cupy" and kind.__name__ == "OutOfMemoryError":
        return True
    return isinstance(exc, RuntimeError) and any(words in str(exc) for words in _FULL)


def lacked_device_memory(exc: BaseException | None) -> bool:
    """Return True if an exception, or one that it was raised from, is about the memory of a device."""
    return exc is not None and (
        isinstance(exc, DeviceMemory) or is_device_full(exc) or lacked_device_memory(exc.__cause__ or exc.__context__)
    )


class DeviceLimit(NamedTuple):
    """`share` of a device's memory, and, if a limit was set, `limit_bytes` of it (0: none)."""

    share: float = 1.0
    limit_bytes: int = 0
    overflow: str = "quarantine"
    lock_folder: str = ""  # where this process meets those that it shares a device with

    def bytes_of(self, total_bytes: int) -> int:
        """Return how many bytes libraries may allocate on a device of this size.

        >>> DeviceLimit(1.0).bytes_of(80 * 10**9), DeviceLimit(0.5, 20 * 10**9).bytes_of(80 * 10**9)
        (80000000000, 19400000000)
        """
        if not self.limit_bytes:
            return int(total_bytes * self.share)
        return max(0, min(self.limit_bytes, total_bytes) - CONTEXT_BYTES)

    def fraction_of(self, total_bytes: int) -> float:
        return min(1.0, self.bytes_of(total_bytes) / max(1, total_bytes))

    @property
    def is_limited(self) -> bool:
        return self.share < 1 or self.limit_bytes > 0


def assigned_limit(environ: Mapping[str, str] | None = None) -> DeviceLimit:
    """Return the limit of this process, read from the environment; without a limit if none was set.

    >>> assigned_limit({"TAMIS_GPU_SHARE": "0.5", "TAMIS_GPU_MEMORY": "20000000000"})
    DeviceLimit(share=0.5, limit_bytes=20000000000, overflow='quarantine', lock_folder='')
    """
    environ = os.environ if environ is None else environ
    return DeviceLimit(
        float(environ.get("TAMIS_GPU_SHARE", "1")),
        int(environ.get("TAMIS_GPU_MEMORY", "0")),
        environ.get("TAMIS_GPU_OVERFLOW", "quarantine"),
        environ.get(LOCK_FOLDER, ""),
    )


def limit_torch(torch: Any, limit: DeviceLimit) -> None:
    """Limit torch in this process, so that it fails here, at once, and not in another process."""
    if limit.is_limited:
        for device in range(torch.cuda.device_count()):
            total = int(torch.cuda.get_device_properties(device).total_memory)
            torch.cuda.set_per_process_memory_fraction(limit.fraction_of(total), device)


def limit_cupy(cupy: Any, limit: DeviceLimit) -> None:
    if limit.is_limited:
        for device in range(cupy.cuda.runtime.getDeviceCount()):
            with cupy.cuda.Device(device) as current:
                cupy.get_default_memory_pool().set_limit(size=limit.bytes_of(int(current.mem_info[1])))


# -- turns on a device -------------------------------------------------------------------------------------------------
class GpuLock:
    """A lock on one device, shared by the workers of a run on this machine.

    `folder`: of the run; "" locks nothing. `device`: its name in CUDA_VISIBLE_DEVICES.
    """

    def __init__(self, folder: str, device: str) -> None:
        name = re.sub(r"[^A-Za-z0-9-]", "_", f"{socket.gethostname()}-{device}")[:150]
        self._path = Path(folder) / f"gpu-{name}.lock" if folder else None

    @contextlib.contextmanager
    def acquire(self) -> Iterator[None]:
        """Wait for the other processes, and hold the device until the block ends."""
        fd = -1
        if self._path is not None:
            try:
                fd = files.take_lock(self._path, wait=True)
            except OSError:  # a full or read-only disk, one without locks: without turns it is slower, and as right
                self._path = None
        try:
            yield
        finally:
            if fd >= 0:
                os.close(fd)
