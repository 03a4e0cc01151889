"""GPUs through a pretended NVML and a pretended nvidia-smi: only the border to the driver is replaced."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tamis.memory.gpu import (
    GpuLook,
    NvmlSource,
    SmiSource,
    count_gpus,
    find_gpus,
    parse_smi,
    visible_gpus,
)

GIB = 1 << 30


class NVMLError(Exception):
    pass


def fake_nvml(n_gpus: int = 2, **changes: Any) -> ModuleType:
    """What the module pynvml offers of a machine with these GPUs."""
    module: Any = ModuleType("pynvml")
    calls: list[str] = []

    def tell(name: str, answer: Any) -> None:
        def function(*args: Any) -> Any:
            calls.append(name)
            value = changes.get(name, answer)
            if isinstance(value, Exception):
                raise value
            return value(*args) if callable(value) else value

        setattr(module, name, function)

    tell("nvmlInit", None)
    tell("nvmlShutdown", None)
    tell("nvmlDeviceGetCount", n_gpus)
    tell("nvmlDeviceGetHandleByIndex", lambda i: f"handle {i}")
    tell("nvmlDeviceGetUUID", lambda h: f"GPU-{h[-1]}")
    tell("nvmlDeviceGetName", b"NVIDIA H200")
    tell("nvmlDeviceGetMemoryInfo", SimpleNamespace(used=3 * GIB, total=140 * GIB))
    tell("nvmlDeviceGetUtilizationRates", SimpleNamespace(gpu=75, memory=20))
    tell("nvmlDeviceGetTemperature", lambda h, sensor: 41 + sensor)
    tell(
        "nvmlDeviceGetComputeRunningProcesses",
        [SimpleNamespace(pid=11, usedGpuMemory=2 * GIB), SimpleNamespace(pid=12, usedGpuMemory=None)],
    )
    module.NVMLError, module.NVML_TEMPERATURE_GPU, module.calls = NVMLError, 0, calls
    return module


def test_nvml_tells_memory_business_temperature_and_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml: Any = fake_nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    source = NvmlSource({})
    first, second = source.look()
    assert first == GpuLook(0, "NVIDIA H200", 3 * GIB, 140 * GIB, 0.75, 41.0, {11: 2 * GIB, 12: 0})
    assert second.gpu == 1
    assert (first.ours_bytes([11, 11, 99]), first.ours_bytes([])) == (2 * GIB, 0)
    source.close()
    assert (nvml.calls[0], nvml.calls[-1]) == ("nvmlInit", "nvmlShutdown")


def test_what_a_device_does_not_tell_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    error = NVMLError("Not Supported")
    nvml = fake_nvml(
        1,
        nvmlDeviceGetUtilizationRates=error,
        nvmlDeviceGetTemperature=error,
        nvmlDeviceGetComputeRunningProcesses=error,
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert NvmlSource({}).look() == [GpuLook(0, "NVIDIA H200", 3 * GIB, 140 * GIB, None, None, {})]


def test_a_gpu_that_fell_off_the_bus_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(nvmlDeviceGetMemoryInfo=NVMLError("GPU is lost")))
    assert NvmlSource({}).look() == []


def test_memory_that_the_driver_keeps_is_not_counted_where_it_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    def memory(handle: str, version: int | None = None) -> SimpleNamespace:
        return SimpleNamespace(used=2 * GIB if version == 0x02000028 else 3 * GIB, total=140 * GIB)

    nvml: Any = fake_nvml(1, nvmlDeviceGetMemoryInfo=memory)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert [g.used_bytes for g in NvmlSource({}).look()] == [3 * GIB]  # an older library
    nvml.nvmlMemory_v2 = 0x02000028
    assert [g.used_bytes for g in NvmlSource({}).look()] == [2 * GIB]


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
def test_only_the_gpus_that_are_ours(value: str | None, expected: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    assert visible_gpus(["GPU-0", "GPU-1", "GPU-2"], environ) == expected
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(3))
    assert [g.gpu for g in NvmlSource(environ).look()] == expected


SMI_GPUS = "0, GPU-aa, NVIDIA H200, 1024, 143771, 87, 36\n1, GPU-bb, NVIDIA H200, 0, 143771, [N/A], [Not Supported]\n"
SMI_APPS = "GPU-aa, 4242, 512\nGPU-aa, 4243, [N/A]\n"


def test_the_tables_of_nvidia_smi() -> None:
    mib = 1 << 20
    assert parse_smi(SMI_GPUS, SMI_APPS, {}) == [
        GpuLook(0, "NVIDIA H200", 1024 * mib, 143_771 * mib, 0.87, 36.0, {4242: 512 * mib, 4243: 0}),
        GpuLook(1, "NVIDIA H200", 0, 143_771 * mib, None, None, {}),
    ]
    assert [g.gpu for g in parse_smi(SMI_GPUS, "", {"CUDA_VISIBLE_DEVICES": "1"})] == [1]
    assert parse_smi("No devices were found\n", "garbage", {}) == []
    assert parse_smi("0, GPU-aa, X, nan, 1e99, -3, inf\n", "", {}) == [GpuLook(0, "X", 0, 0, None, None, {})]


def program(folder: Path, script: str) -> dict[str, str]:
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{script}")
    path.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def answer_of(source: SmiSource) -> list[GpuLook]:
    deadline = time.monotonic() + 20
    while not (found := source.look()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def test_nvidia_smi_is_asked_without_waiting(tmp_path: Path) -> None:
    (tmp_path / "gpus").write_text(SMI_GPUS)
    (tmp_path / "apps").write_text(SMI_APPS)
    script = f'case "$1" in --query-gpu*) cat {tmp_path}/gpus;; *) cat {tmp_path}/apps;; esac\n'
    source = SmiSource(program(tmp_path, script))
    assert source.look() == []  # started, and not yet answered
    assert [(g.gpu, g.busy, sorted(g.processes)) for g in answer_of(source)] == [(0, 0.87, [4242, 4243]), (1, None, [])]
    source.close()


def test_an_nvidia_smi_that_fails_or_hangs_is_ended(tmp_path: Path) -> None:
    failing = SmiSource(program(tmp_path, f"printf '{SMI_GPUS}'; exit 9"))
    failing.look()
    while failing._running:
        time.sleep(0.01)
        assert failing.look() == []
    hanging = SmiSource(program(tmp_path, "exec sleep 1000"))
    hanging.look()
    processes = [q._process for q in hanging._running]
    assert len(processes) == 2
    hanging.close()
    assert [p.returncode for p in processes] == [-9, -9]


def test_the_best_source_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert count_gpus() == 1
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml())
    assert isinstance(find_gpus({"CUDA_VISIBLE_DEVICES": "0"}), NvmlSource)
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(nvmlInit=NVMLError("Driver Not Loaded")))
    assert isinstance(find_gpus(program(tmp_path, "exit 0")), SmiSource)
    monkeypatch.setitem(sys.modules, "pynvml", None)  # not installed
    assert find_gpus({"PATH": str(tmp_path / "empty")}) is None


def test_without_a_gpu_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    nvml: Any = fake_nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert find_gpus() is None
    assert nvml.calls == []
