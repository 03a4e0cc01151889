"""GPUs of this machine, and how full and busy they are, without importing anything that touches them.

Figures come from the driver's library (nvml.py, loaded only where there is a GPU), else from the program nvidia-smi,
which is started in the background and never waited for. Where there is neither there are no figures.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple, Protocol, TypeVar

from tamis._dataclasses import dataclass
from tamis.memory.nvml import Nvml, NvmlError

T = TypeVar("T")

_SMI_EVERY_S = 10.0  # a run of nvidia-smi takes up to a second of CPU time where there are many GPUs
_SMI_DEADLINE_S = 20.0
_SMI_BYTES = 1 << 20
_GPU_FIELDS = "index,uuid,name,memory.used,memory.total,utilization.gpu,temperature.gpu"
_APP_FIELDS = "gpu_uuid,pid,used_memory"
_MIB = 1 << 20
_FREE_SHARE = 0.9  # of a device that is ours alone so much is free: the driver and a desktop take little


@dataclass(frozen=True)
class GpuSample:
    """One GPU at one moment; `busy` is a share (0 to 1), None where the device does not report it."""

    gpu: int
    name: str
    used_bytes: int
    total_bytes: int
    busy: float | None = None
    temperature_c: float | None = None
    # pid -> bytes; in a container the pids may be the host's.
    processes: Mapping[int, int] = field(default_factory=dict)
    free_bytes: int | None = None  # less than what is unused: the driver reserves some; None if unknown

    @property
    def available_bytes(self) -> int:
        """Memory that can still be allocated."""
        return self.total_bytes - self.used_bytes if self.free_bytes is None else self.free_bytes

    def ours_bytes(self, pids: Iterable[int]) -> int:
        return sum(self.processes.get(pid, 0) for pid in set(pids))


def count_gpus() -> int:
    """Return NVIDIA devices that processes of ours may use (CUDA_VISIBLE_DEVICES respected)."""
    return len(device_names(os.environ))


def device_names(environ: Mapping[str, str]) -> list[str]:
    """Return the devices that our processes may use, as named in CUDA_VISIBLE_DEVICES.

    >>> device_names({"CUDA_VISIBLE_DEVICES": "3,GPU-aa"}), device_names({"CUDA_VISIBLE_DEVICES": ""})
    (['3', 'GPU-aa'], [])
    """
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [d.strip() for d in visible.split(",") if d.strip() and d.strip() != "-1"]
    try:
        return [str(i) for i in range(len(os.listdir("/proc/driver/nvidia/gpus")))]
    except OSError:
        return []


class FreeDeviceMemory(NamedTuple):
    """Memory of the GPUs that are ours to use: of the smallest, and what is free on the fullest.

    0: there is none, or it is not known.
    """

    total_bytes: int = 0
    free_bytes: int = 0

    @property
    def is_crowded(self) -> bool:
        """Return True if other processes hold a part of a device that matters."""
        return self.total_bytes > 0 and self.free_bytes < _FREE_SHARE * self.total_bytes


def free_device_memory() -> FreeDeviceMemory:
    """Return the memory of the GPUs of this machine, before anything of ours is on them."""
    source = find_gpus()
    if source is None:
        return FreeDeviceMemory()
    try:
        samples = source.sample()
        return FreeDeviceMemory(
            min((sample.total_bytes for sample in samples), default=0),
            min((sample.available_bytes for sample in samples), default=0),
        )
    finally:
        source.close()


def visible_gpus(uuids: Sequence[str], environ: Mapping[str, str]) -> list[int]:
    """Return the indices of the machine's GPUs that CUDA_VISIBLE_DEVICES leaves to us.

    Entries are numbers, or (the beginning of) GPU names.

    >>> visible_gpus(["GPU-aa", "GPU-bb"], {"CUDA_VISIBLE_DEVICES": "1"}), visible_gpus(["GPU-aa"], {})
    ([1], [0])
    """
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return list(range(len(uuids)))
    indices: list[int] = []
    for name in (n.strip() for n in visible.split(",")):
        if name.isdecimal() and int(name) < len(uuids):
            indices.append(int(name))
        elif name.startswith("GPU-"):
            indices += [i for i, uuid in enumerate(uuids) if uuid.startswith(name)]
        else:  # as in CUDA, an invalid entry ends the list
            break
    return sorted(set(indices))


class GpuSource(Protocol):
    def sample(self) -> list[GpuSample]: ...

    def close(self) -> None: ...


def find_gpus(environ: Mapping[str, str] | None = None) -> GpuSource | None:
    """Return a source of metrics on the GPUs that we may use; None if there are none or none can be queried."""
    environ = os.environ if environ is None else environ
    if not count_gpus():
        return None
    try:
        return NvmlSource(environ)
    except (NvmlError, OSError):  # no library, no driver
        return SmiSource(environ) if _find_smi(environ) else None


class NvmlSource:
    """Through the driver's own library; a look takes well under a millisecond per GPU."""

    def __init__(self, environ: Mapping[str, str], library: Any = None) -> None:
        self._nvml = Nvml(library)
        devices = self._nvml.devices()
        visible = visible_gpus([self._nvml.uuid(d) for d in devices], environ)
        self._devices = {i: devices[i] for i in visible}
        self._names = {i: self._nvml.name(devices[i]) for i in visible}
        self._seen_us = dict.fromkeys(visible, 0)

    def sample(self) -> list[GpuSample]:
        samples = []
        for gpu, device in self._devices.items():
            memory = _query(self._nvml.memory, device)
            if memory is not None:  # else it has fallen off the bus
                degrees, running = _query(self._nvml.temperature, device), _query(self._nvml.processes, device)
                free = _query(self._nvml.free, device)
                samples.append(GpuSample(gpu, self._names[gpu], *memory, self._busy(gpu), degrees, running or {}, free))
        return samples

    def _busy(self, gpu: int) -> float | None:
        """Return the busy share since the last call if the device reports it, else that of the last moment."""
        device, before_us = self._devices[gpu], self._seen_us[gpu]
        moments = _query(self._nvml.busy_since, device, before_us)
        if not moments:
            return _query(self._nvml.busy, device)
        self._seen_us[gpu] = moments[-1][0]
        return sum(share for _, share in moments) / len(moments) if before_us else moments[-1][1]

    def close(self) -> None:
        _query(self._nvml.close)


def _query(query: Callable[..., T], *arguments: Any) -> T | None:
    """Return the answer of a query, or None if this device does not report it.

    For example, a slice of a GPU has no utilisation.
    """
    try:
        return query(*arguments)
    except NvmlError:
        return None


class SmiSource:
    """Through nvidia-smi: started every 10 s, its answer is taken whenever it has come.

    Until then the last one holds.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ, self._program = environ, _find_smi(environ)
        self._running: list[_Question] = []
        self._started_s = float("-inf")
        self._last: list[GpuSample] = []

    def sample(self) -> list[GpuSample]:
        now = time.monotonic()
        if self._running:
            answers = [q.answer(now) for q in self._running]
            if all(a is not None for a in answers):
                self._running = []
                gpus, apps = (a or "" for a in answers)
                self._last = parse_smi(gpus, apps, self._environ)
        elif now - self._started_s >= _SMI_EVERY_S:
            self._started_s = now
            with contextlib.suppress(OSError):
                for query in (f"--query-gpu={_GPU_FIELDS}", f"--query-compute-apps={_APP_FIELDS}"):
                    self._running.append(_Question([self._program, query, "--format=csv,noheader,nounits"], now))
        return self._last

    def close(self) -> None:
        for question in self._running:
            question.end()
        self._running = []


class _Question:
    """A program whose output is collected without waiting."""

    def __init__(self, command: list[str], now: float) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._deadline_s = now + _SMI_DEADLINE_S
        self._output = b""
        self._ended = False

    def answer(self, now: float) -> str | None:
        """Return the output of the process once it has ended; None until then.

        Empty for a process that failed or took too long.
        """
        if self._ended:
            return self._output.decode("utf-8", "replace")
        assert self._process.stdout is not None
        status = self._process.poll()
        while len(self._output) < _SMI_BYTES and (chunk := self._process.stdout.read(65536)):
            self._output += chunk
        if status is None and now < self._deadline_s:
            return None
        self.end()
        if status != 0:
            self._output = b""
        return self._output.decode("utf-8", "replace")

    def end(self) -> None:
        self._ended = True
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def parse_smi(gpus: str, apps: str, environ: Mapping[str, str]) -> list[GpuSample]:
    """Parse GPUs from the two tables that nvidia-smi prints (sizes in MiB); unknown figures are absent."""
    rows = [r for r in (_cells(line, 7) for line in gpus.splitlines()) if r is not None and r[0].isdecimal()]
    memory: dict[str, dict[int, int]] = {}
    for app in (_cells(line, 3) for line in apps.splitlines()):
        if app is not None and app[1].isdecimal():
            memory.setdefault(app[0], {})[int(app[1])] = int(_number(app[2]) or 0) * _MIB
    visible = set(visible_gpus([r[1] for r in rows], environ))
    samples = []
    for i, (index, uuid, name, used, total, busy, degrees) in enumerate(rows):
        if i in visible:
            in_use, in_total = (int(_number(size) or 0) * _MIB for size in (used, total))
            share = None if (percent := _number(busy)) is None else percent / 100
            samples.append(GpuSample(int(index), name, in_use, in_total, share, _number(degrees), memory.get(uuid, {})))
    return samples


def _cells(line: str, n: int) -> list[str] | None:
    cells = [c.strip() for c in line.split(",")]
    return cells if len(cells) == n else None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < 1e12 else None


def _find_smi(environ: Mapping[str, str]) -> str:
    import shutil

    return shutil.which("nvidia-smi", path=environ.get("PATH")) or ""
