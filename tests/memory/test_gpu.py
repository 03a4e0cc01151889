"""GPUs through a pretended NVML and a pretended nvidia-smi: only the border to the driver is replaced."""

# The fake driver has the names of the real one.
# ruff: noqa: N802

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tamis.memory.gpu import (
    GpuSample,
    NvmlSource,
    SmiSource,
    count_gpus,
    find_gpus,
    parse_smi,
    visible_gpus,
)

GIB = 1 << 30


MISSING = "not in this library"
NOT_SUPPORTED, LOST, INSUFFICIENT_SIZE = 3, 15, 7


class Library:
    """What libnvidia-ml does on a machine with these GPUs, by the same calls.

    `changes`: error numbers by function, or MISSING.
    """

    def __init__(self, n_gpus: int = 2, samples: list[tuple[int, int]] | None = None, **changes: int | str) -> None:
        self.n_gpus, self.samples, self.changes = n_gpus, samples or [], changes
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        change = self.changes.get(name)
        if change == MISSING:
            raise AttributeError(name)

        def function(*arguments: Any) -> int:
            self.calls.append(name)
            return change if isinstance(change, int) else int(getattr(Library, f"_{name}")(self, *arguments) or 0)

        return function

    def _nvmlInit_v2(self) -> None: ...

    def _nvmlShutdown(self) -> None: ...

    def _nvmlDeviceGetCount_v2(self, n: Any) -> None:
        n._obj.value = self.n_gpus

    def _nvmlDeviceGetHandleByIndex_v2(self, i: Any, device: Any) -> None:
        device._obj.value = 1000 + i.value

    def _nvmlDeviceGetUUID(self, device: Any, text: Any, n: Any) -> None:
        text.value = f"GPU-{device.value - 1000}".encode()

    def _nvmlDeviceGetName(self, device: Any, text: Any, n: Any) -> None:
        text.value = b"NVIDIA H200"

    def _nvmlDeviceGetMemoryInfo_v2(self, device: Any, memory: Any) -> None:
        assert memory._obj.version == 0x02000028
        memory._obj.used, memory._obj.reserved, memory._obj.total = 3 * GIB, GIB, 140 * GIB
        memory._obj.free = 136 * GIB

    def _nvmlDeviceGetMemoryInfo(self, device: Any, memory: Any) -> None:
        memory._obj.used, memory._obj.total, memory._obj.free = 4 * GIB, 140 * GIB, 136 * GIB

    def _nvmlDeviceGetUtilizationRates(self, device: Any, rates: Any) -> None:
        rates._obj.gpu, rates._obj.memory = 75, 20

    def _nvmlDeviceGetTemperature(self, device: Any, sensor: Any, degrees: Any) -> None:
        degrees._obj.value = 41 + sensor.value

    def _nvmlDeviceGetComputeRunningProcesses_v3(self, device: Any, n: Any, processes: Any) -> int:
        found = [(11, 2 * GIB), (12, (1 << 64) - 1)]
        if n._obj.value < len(found):
            n._obj.value = len(found)
            return INSUFFICIENT_SIZE
        n._obj.value = len(found)
        for process, (pid, used) in zip(processes, found, strict=False):
            process.pid, process.used = pid, used
        return 0

    def _nvmlDeviceGetSamples(self, device: Any, kind: Any, since: Any, value_kind: Any, n: Any, samples: Any) -> int:
        assert kind.value == 1
        newer = [s for s in self.samples if s[0] > since.value]
        if not newer:
            return NOT_SUPPORTED
        for at, (moment, value) in enumerate(newer if samples is not None else ()):
            samples[at].at_us, samples[at].value = moment, value | 0xAB << 32  # the upper half of a union
        n._obj.value = len(newer)
        return 0


def test_nvml_reports_memory_business_temperature_and_processes() -> None:
    library = Library()
    source = NvmlSource({}, library)
    first, second = source.sample()
    assert first == GpuSample(0, "NVIDIA H200", 3 * GIB, 140 * GIB, 0.75, 41.0, {11: 2 * GIB, 12: 0}, 136 * GIB)
    assert second.gpu == 1
    assert (first.ours_bytes([11, 11, 99]), first.ours_bytes([])) == (2 * GIB, 0)
    source.close()
    assert (library.calls[0], library.calls[-1]) == ("nvmlInit_v2", "nvmlShutdown")


def test_how_busy_a_device_was_is_reported_of_all_the_time_since_the_last_look() -> None:
    library = Library(1, samples=[(0, 0), (1_000, 10), (2_000, 90)])  # an entry that was never filled, two moments
    source = NvmlSource({}, library)
    assert [g.busy for g in source.sample()] == [0.9]  # the latest: what was before is not ours
    library.samples += [(3_000, 100), (4_000, 50), (5_000, 4_000_000)]  # the last is none
    assert [g.busy for g in source.sample()] == [0.75]
    assert [g.busy for g in source.sample()] == [0.75]  # nothing new: the last moment, from another call


def test_what_a_device_does_not_tell_is_absent() -> None:
    names = "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetTemperature", "nvmlDeviceGetComputeRunningProcesses_v3"
    library = Library(1, **dict.fromkeys(names, NOT_SUPPORTED))
    assert NvmlSource({}, library).sample() == [
        GpuSample(0, "NVIDIA H200", 3 * GIB, 140 * GIB, None, None, {}, 136 * GIB)
    ]


def test_a_gpu_that_fell_off_the_bus_is_left_out() -> None:
    lost = Library(nvmlDeviceGetMemoryInfo=LOST, nvmlDeviceGetMemoryInfo_v2=LOST)
    assert NvmlSource({}, lost).sample() == []


def test_an_older_driver_reports_memory_too() -> None:
    older = Library(1, nvmlDeviceGetMemoryInfo_v2=MISSING)
    assert [(g.used_bytes, g.available_bytes) for g in NvmlSource({}, older).sample()] == [(4 * GIB, 136 * GIB)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("2,0", [0, 2]),
        ("GPU-1", [1]),
        ("7", []),
        ("1,-1,2", [1]),
        ("MIG-xyz", []),
    ],
)
def test_only_the_gpus_that_are_ours(value: str | None, expected: list[int]) -> None:
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    assert visible_gpus(["GPU-0", "GPU-1", "GPU-2"], environ) == expected
    assert [g.gpu for g in NvmlSource(environ, Library(3)).sample()] == expected


SMI_GPUS = "0, GPU-aa, NVIDIA H200, 1024, 143771, 87, 36\n1, GPU-bb, NVIDIA H200, 0, 143771, [N/A], [Not Supported]\n"
SMI_APPS = "GPU-aa, 4242, 512\nGPU-aa, 4243, [N/A]\n"


def test_the_tables_of_nvidia_smi() -> None:
    mib = 1 << 20
    assert parse_smi(SMI_GPUS, SMI_APPS, {}) == [
        GpuSample(0, "NVIDIA H200", 1024 * mib, 143_771 * mib, 0.87, 36.0, {4242: 512 * mib, 4243: 0}),
        GpuSample(1, "NVIDIA H200", 0, 143_771 * mib, None, None, {}),
    ]
    assert [g.gpu for g in parse_smi(SMI_GPUS, "", {"CUDA_VISIBLE_DEVICES": "1"})] == [1]
    assert parse_smi("No devices were found\n", "garbage", {}) == []
    assert parse_smi("0, GPU-aa, X, nan, 1e99, -3, inf\n", "", {}) == [GpuSample(0, "X", 0, 0, None, None, {})]


def program(folder: Path, script: str) -> dict[str, str]:
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{script}")
    path.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def answer_of(source: SmiSource) -> list[GpuSample]:
    deadline = time.monotonic() + 20
    while not (found := source.sample()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def test_nvidia_smi_is_queried_without_waiting(tmp_path: Path) -> None:
    (tmp_path / "gpus").write_text(SMI_GPUS)
    (tmp_path / "apps").write_text(SMI_APPS)
    script = f'case "$1" in --query-gpu*) cat {tmp_path}/gpus;; *) cat {tmp_path}/apps;; esac\n'
    source = SmiSource(program(tmp_path, script))
    assert source.sample() == []  # started, and not yet answered
    assert [(g.gpu, g.busy, sorted(g.processes)) for g in answer_of(source)] == [(0, 0.87, [4242, 4243]), (1, None, [])]
    source.close()


def test_an_nvidia_smi_that_fails_or_hangs_is_ended(tmp_path: Path) -> None:
    failing = SmiSource(program(tmp_path, f"printf '{SMI_GPUS}'; exit 9"))
    failing.sample()
    while failing._running:
        time.sleep(0.01)
        assert failing.sample() == []
    hanging = SmiSource(program(tmp_path, "exec sleep 1000"))
    hanging.sample()
    processes = [q._process for q in hanging._running]
    assert len(processes) == 2
    hanging.close()
    assert [p.returncode for p in processes] == [-9, -9]


def test_the_best_source_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert count_gpus() == 1
    monkeypatch.setattr("ctypes.CDLL", lambda name: Library())
    assert isinstance(find_gpus({"CUDA_VISIBLE_DEVICES": "0"}), NvmlSource)
    monkeypatch.setattr("ctypes.CDLL", lambda name: Library(nvmlInit_v2=9))  # a driver that is not loaded
    assert isinstance(find_gpus(program(tmp_path, "exit 0")), SmiSource)
    monkeypatch.setattr("ctypes.CDLL", raise_missing)
    assert find_gpus({"PATH": str(tmp_path / "empty")}) is None


def raise_missing(name: str) -> Any:
    raise OSError(f"{name}: cannot open shared object file")


def test_without_a_gpu_nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    library = Library()
    monkeypatch.setattr("ctypes.CDLL", lambda name: library)
    assert find_gpus() is None
    assert library.calls == []
