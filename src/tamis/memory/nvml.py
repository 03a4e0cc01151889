"""Figures of NVIDIA GPUs from libnvidia-ml, which every driver installs, so that no package is needed.

Used by gpu.py alone. A call that the driver refuses raises NvmlError with its number.
"""

from __future__ import annotations

import ctypes
from ctypes import byref
from typing import Any

_LIBRARY = "libnvidia-ml.so.1"
_TEXT_BYTES = 96
_INSUFFICIENT_SIZE = 7
_UTILIZATION_SAMPLES = 1
_TEMPERATURE_OF_GPU = 0
_MAX_SAMPLES = 1000


class NvmlError(Exception):
    pass


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_uint64), ("free", ctypes.c_uint64), ("used", ctypes.c_uint64))


class _MemoryV2(ctypes.Structure):
    """Memory of a GPU. The driver's own is apart (`reserved`), as in nvidia-smi."""

    _fields_ = (
        ("version", ctypes.c_uint32),
        ("total", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64),
        ("free", ctypes.c_uint64),
        ("used", ctypes.c_uint64),
    )


class _Rates(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint32), ("memory", ctypes.c_uint32))


class _ProcessMemory(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint32),
        ("used", ctypes.c_uint64),
        ("instance", ctypes.c_uint32),
        ("part", ctypes.c_uint32),
    )


class _Sample(ctypes.Structure):
    _fields_ = (("at_us", ctypes.c_uint64), ("value", ctypes.c_uint64))  # of the value, 32 bits count here


_UNKNOWN_BYTES = (1 << 64) - 1  # a process whose memory the driver does not report


class Nvml:
    """The library, begun; `library` replaces it in tests."""

    def __init__(self, library: Any = None) -> None:
        self._library = ctypes.CDLL(_LIBRARY) if library is None else library
        self._call("nvmlInit_v2")

    def close(self) -> None:
        self._call("nvmlShutdown")

    def devices(self) -> list[ctypes.c_void_p]:
        n = ctypes.c_uint32()
        self._call("nvmlDeviceGetCount_v2", byref(n))
        handles = [ctypes.c_void_p() for _ in range(n.value)]
        for i, device in enumerate(handles):
            self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint32(i), byref(device))
        return handles

    def name(self, device: ctypes.c_void_p) -> str:
        return self._text("nvmlDeviceGetName", device)

    def uuid(self, device: ctypes.c_void_p) -> str:
        return self._text("nvmlDeviceGetUUID", device)

    def memory(self, device: ctypes.c_void_p) -> tuple[int, int]:
        """Return the bytes used and the bytes in total."""
        newer = _MemoryV2(version=ctypes.sizeof(_MemoryV2) | 2 << 24)
        try:
            self._call("nvmlDeviceGetMemoryInfo_v2", device, byref(newer))
        except NvmlError:  # an older driver
            older = _Memory()
            self._call("nvmlDeviceGetMemoryInfo", device, byref(older))
            return int(older.used), int(older.total)
        return int(newer.used), int(newer.total)

    def free(self, device: ctypes.c_void_p) -> int:
        """Return the bytes that can still be allocated: without what the driver reserves for itself."""
        memory: _MemoryV2 | _Memory = _MemoryV2(version=ctypes.sizeof(_MemoryV2) | 2 << 24)
        try:
            self._call("nvmlDeviceGetMemoryInfo_v2", device, byref(memory))
        except NvmlError:
            memory = _Memory()
            self._call("nvmlDeviceGetMemoryInfo", device, byref(memory))
        return int(memory.free)

    def busy(self, device: ctypes.c_void_p) -> float:
        """Return the share of the last sampling period (a sixth of a second to one second) spent computing."""
        rates = _Rates()
        self._call("nvmlDeviceGetUtilizationRates", device, byref(rates))
        return float(rates.gpu) / 100

    def busy_since(self, device: ctypes.c_void_p, at_us: int) -> list[tuple[int, float]]:
        """Return the busy shares, with their times, of all samples after `at_us` that the driver still has."""
        kind, n = ctypes.c_int(), ctypes.c_uint32()
        about = device, ctypes.c_int(_UTILIZATION_SAMPLES), ctypes.c_uint64(at_us), byref(kind), byref(n)
        self._call("nvmlDeviceGetSamples", *about, None)
        n.value = min(n.value, _MAX_SAMPLES)
        samples = (_Sample * n.value)()
        self._call("nvmlDeviceGetSamples", *about, samples)
        usage = ((int(s.at_us), (s.value & 0xFFFFFFFF) / 100) for s in samples[: n.value])
        return sorted((at, share) for at, share in usage if at > at_us and share <= 1)

    def temperature(self, device: ctypes.c_void_p) -> float:
        degrees = ctypes.c_uint32()
        self._call("nvmlDeviceGetTemperature", device, ctypes.c_int(_TEMPERATURE_OF_GPU), byref(degrees))
        return float(degrees.value)

    def processes(self, device: ctypes.c_void_p) -> dict[int, int]:
        """Return the processes that compute on the device: pid -> bytes (0 if not reported)."""
        n = ctypes.c_uint32(0)
        status = self._status("nvmlDeviceGetComputeRunningProcesses_v3", device, byref(n), None)
        if status != _INSUFFICIENT_SIZE:
            self._check("nvmlDeviceGetComputeRunningProcesses_v3", status)
            return {}
        n.value += 8  # some may come meanwhile
        entries = (_ProcessMemory * n.value)()
        self._call("nvmlDeviceGetComputeRunningProcesses_v3", device, byref(n), entries)
        return {int(p.pid): 0 if p.used == _UNKNOWN_BYTES else int(p.used) for p in entries[: n.value]}

    def _text(self, function: str, device: ctypes.c_void_p) -> str:
        buffer = ctypes.create_string_buffer(_TEXT_BYTES)
        self._call(function, device, buffer, ctypes.c_uint32(_TEXT_BYTES))
        return buffer.value.decode("utf-8", "replace")

    def _call(self, function: str, *arguments: Any) -> None:
        self._check(function, self._status(function, *arguments))

    def _status(self, function: str, *arguments: Any) -> int:
        try:
            called = getattr(self._library, function)
        except AttributeError:
            raise NvmlError(f"{function} is not in this driver's {_LIBRARY}") from None
        return int(called(*arguments))

    def _check(self, function: str, status: int) -> None:
        if status:
            raise NvmlError(f"{function}: error {status}")
