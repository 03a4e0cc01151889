"""XXH3-128 of texts on a GPU, with the same bits as on the CPU, and the choice between the two by measuring them.

A core hashes more than 10 GB/s, faster than texts can be copied to a GPU, so the CPU wins wherever texts are in its
memory; `auto` measures that. The kernel is in xxh3_128.cu, compiled at first use (cupy, NVRTC); a test compiles the
same file for the CPU and compares it with the library.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tamis._dataclasses import dataclass
from tamis._lazy import np
from tamis.errors import MissingExtra, UsageError
from tamis.memory.gpu import count_gpus

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

SOURCE = Path(__file__).with_name("xxh3_128.cu")
BACKENDS = ("cpu", "gpu", "auto")
_THREADS = 128
_SAMPLE_BYTES, _SAMPLE_TEXT_BYTES = 64 << 20, 4096
_DEADLINE_S = 90.0


class GpuHasher:
    """A function of the bytes of texts and their offsets, computed on a GPU."""

    def __init__(self) -> None:
        try:
            import cupy
        except ImportError:
            raise MissingExtra("--backend gpu (hashing on a GPU)", "gpu") from None
        self._cupy = cupy
        module = cupy.RawModule(code=SOURCE.read_text(encoding="utf-8"), options=("--std=c++17",), backend="nvrtc")
        self._kernel = module.get_function("hash_spans")

    def __call__(self, data: Array, offsets: Array) -> tuple[Array, Array]:
        """Return (hi, lo) of data[offsets[i] : offsets[i + 1]]."""
        cupy, n = self._cupy, len(offsets) - 1
        hi, lo = (cupy.zeros(n, cupy.uint64) for _ in range(2))
        if n:
            first, last = int(offsets[0]), int(offsets[-1])
            device_data = cupy.asarray(
                np.ascontiguousarray(data[first:last]) if last > first else np.zeros(1, np.uint8)
            )
            device_offsets = cupy.asarray((np.asarray(offsets, np.int64) - first).astype(np.int64))
            self._kernel((-(-n // _THREADS),), (_THREADS,), (device_data, device_offsets, np.int64(n), hi, lo))
        return cupy.asnumpy(hi), cupy.asnumpy(lo)


@dataclass(frozen=True)
class BackendChoice:
    """The device that hashes keys, and the reason, as part of a sentence."""

    backend: str  # cpu or gpu
    why: str


def choose(backend: str, n_cores: int, n_gpus: int | None = None, measured: Any = None) -> BackendChoice:
    """Choose where texts are hashed; `auto`: on the GPU if it hashes more bytes per second than all cores together."""
    n_gpus = count_gpus() if n_gpus is None else n_gpus
    if backend == "gpu" and not n_gpus:
        raise UsageError("--backend gpu: this machine has no GPU; use --backend cpu, or auto")
    if backend != "auto":
        return BackendChoice(backend, "as asked for")
    if not n_gpus:
        return BackendChoice("cpu", "there is no GPU")
    rates = (measured or measure)()
    if "gpu" not in rates:
        return BackendChoice("cpu", f"the GPU cannot be used: {rates.get('error', 'it reported nothing')}")
    cpu, gpu = rates["cpu"] * n_cores / 1e9, rates["gpu"] * n_gpus / 1e9
    faster = "gpu" if gpu > cpu else "cpu"
    return BackendChoice(
        faster, f"measured: {n_cores} cores hash {cpu:.0f} GB/s, the GPU {gpu:.0f} GB/s with the copies to it"
    )


def measure() -> dict[str, Any]:
    """Measure the bytes per second of a core and of a GPU."""
    return measure_apart(__name__)


def measure_apart(module: str, *arguments: str) -> dict[str, Any]:
    """Run a module as a program and return the JSON object that it prints; the caller must not hold CUDA."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
            check=False,
            env=dict(os.environ),
        )
        rates = json.loads(done.stdout.strip().splitlines()[-1])
        return rates if isinstance(rates, dict) else {"error": "it reported nothing"}
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired) as exc:
        return {"error": type(exc).__name__}


def _main() -> None:
    import xxhash

    data = np.random.default_rng(0).integers(0, 256, _SAMPLE_BYTES, np.uint8)
    offsets = np.arange(0, len(data) + 1, _SAMPLE_TEXT_BYTES, dtype=np.int64)
    view: memoryview = memoryview(data)  # type: ignore[arg-type]
    began = time.perf_counter()
    for a in range(0, len(data), _SAMPLE_TEXT_BYTES):
        xxhash.xxh3_128_digest(view[a : a + _SAMPLE_TEXT_BYTES])
    rates: dict[str, Any] = {"cpu": len(data) / (time.perf_counter() - began)}
    try:
        hasher = GpuHasher()
        hasher(data, offsets)
        began = time.perf_counter()
        hasher(data, offsets)
        rates["gpu"] = len(data) / (time.perf_counter() - began)
    except Exception as exc:  # whatever the libraries raise, the CPU is used then
        rates["error"] = f"{type(exc).__name__}: {str(exc)[:200]}"
    print(json.dumps(rates))


if __name__ == "__main__":
    _main()
