"""Sketches on a GPU, with the same keys as the CPU's kernel, and the choice between the two by measuring them.

The kernel is in sketch.cu, compiled at first use (cupy, NVRTC); a test compiles the same file for the CPU and compares
it with the CPU's kernel. The CPU sketches documents that are long or not well-formed, and shingles of words. Before a
GPU is used, its keys of some documents are compared with the CPU's.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tamis._lazy import np, pa
from tamis.dedup.exact.gpu_hash import BackendChoice, measure_apart
from tamis.errors import MissingExtra, TamisError, UsageError
from tamis.memory.gpu import count_gpus

if TYPE_CHECKING:
    from tamis.dedup.fuzzy.stages import Sketch
    from tamis.kernels.buffers import StringBuffers

    Array = np.ndarray[Any, Any]

SOURCE = Path(__file__).with_name("sketch.cu")
MAX_BINS = 1024  # in shared memory
LONGEST_BYTES = 1 << 20  # a longer document would keep one block of threads busy while the others are idle
_MAX_BLOCKS = 1 << 16
_SAMPLE_BYTES, _SAMPLE_TEXT_BYTES = 32 << 20, 4000


class Differs(TamisError):
    """The GPU gave other keys than the CPU."""


def _missing() -> MissingExtra:
    return MissingExtra("--backend gpu (sketches on a GPU)", "gpu")


def obstacle(sketch: Sketch) -> str:
    """Return why a sketch cannot be computed on a GPU, as part of a sentence; empty if it can."""
    if sketch.unit != "char":
        return "shingles of words are made on the CPU"
    if sketch.method != "fss":
        return f"the method {sketch.method!r} is for comparison, on the CPU"
    if sketch.bands * sketch.rows > MAX_BINS:
        return f"{sketch.bands} bands of {sketch.rows} are more than the {MAX_BINS} values that fit"
    return ""


def definitions(sketch: Sketch) -> list[str]:
    """Return the compiler definitions of sketch.cu for a sketch."""
    return [f"-DBINS={sketch.bands * sketch.rows}", f"-DROWS={sketch.rows}", f"-DWIDE={int(sketch.wide)}"]


class GpuSketcher:
    """Like band_keys, on a GPU: (keys[document, band], shingles of each) from the buffers of texts."""

    def __init__(self, sketch: Sketch) -> None:
        try:
            import cupy
        except ImportError:
            raise _missing() from None
        from tamis.memory.device_limits import assigned_limit, limit_cupy

        self._cupy = cupy
        limit_cupy(cupy, assigned_limit())
        options = ("--std=c++17", *definitions(sketch))
        code = SOURCE.read_text(encoding="utf-8")
        self._kernel = cupy.RawModule(code=code, options=options, backend="nvrtc").get_function("sketches")
        self._run = Sketcher(sketch, self._launch)
        check(self._run)

    def __call__(self, parts: StringBuffers) -> tuple[Array, Array]:
        return self._run(parts)

    def _launch(
        self, data: Array, starts: Array, ends: Array, n: int, power: Any, seed: Any, bands: int
    ) -> tuple[Array, Array]:
        cupy, n_rows = self._cupy, len(starts)
        keys, counts = cupy.empty((n_rows, bands), cupy.uint64), cupy.empty(n_rows, cupy.int64)
        device_arrays = [cupy.asarray(x) for x in (data if len(data) else np.zeros(1, np.uint8), starts, ends)]
        arguments = (*device_arrays, np.int64(n_rows), np.int32(n), power, seed, keys, counts)
        self._kernel((min(n_rows, _MAX_BLOCKS),), (128,), arguments)
        return cupy.asnumpy(keys), cupy.asnumpy(counts)


class Sketcher:
    """Divides documents between sketch.cu, wherever it runs, and the CPU's kernel. `launch` runs sketch.cu."""

    def __init__(self, sketch: Sketch, launch: Callable[..., tuple[Array, Array]]) -> None:
        from tamis.kernels.sketch._documents import shingling

        if reason := obstacle(sketch):
            raise UsageError(f"--backend gpu: {reason}; use --backend cpu")
        self.sketch, self._launch = sketch, launch
        self._plan = shingling("band_keys", sketch.n, "char", sketch.seed)

    def __call__(self, parts: StringBuffers) -> tuple[Array, Array]:
        starts, ends = parts.spans()
        keys = np.zeros((len(starts), self.sketch.bands), np.uint64)
        n_shingles = np.full(len(starts), -1, np.int64)
        on_device = np.flatnonzero(ends - starts <= LONGEST_BYTES)
        if len(on_device):
            first, last = int(starts[on_device].min()), int(ends[on_device].max())
            data = np.ascontiguousarray(parts.data[first:last])
            plan = self._plan
            keys[on_device], n_shingles[on_device] = self._launch(
                data,
                starts[on_device] - first,
                ends[on_device] - first,
                plan.n,
                plan.power,
                plan.seed,
                self.sketch.bands,
            )
        others = np.flatnonzero(n_shingles < 0)  # too long, or not well-formed
        if len(others):
            keys[others], n_shingles[others] = on_cpu(self.sketch, parts, others)
        return keys, n_shingles


def on_cpu(sketch: Sketch, parts: StringBuffers, rows: Array | None = None) -> tuple[Array, Array]:
    """Run the CPU kernel over all documents, or over some."""
    from tamis.kernels.buffers import StringBuffers
    from tamis.kernels.sketch.band_keys import band_keys

    if rows is not None:
        starts, ends = parts.spans(rows)
        data = np.concatenate(
            [np.empty(0, np.uint8), *(parts.data[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True))]
        )
        parts = StringBuffers(np.concatenate([[0], np.cumsum(ends - starts)]).astype(np.int64), data, None)
    return band_keys(parts, **vars(sketch))


def check(sketcher: Sketcher) -> None:
    """Compare with the CPU on documents of all kinds; raise Differs if a key is another."""
    from tamis.kernels.buffers import string_buffers

    words = "the quick brown fox jumps over a lazy dog while größere 中文 texts 😀 wait, and wait; "
    texts = [(words * (1 + i))[: 7 * i * i] for i in range(30)] + ["", " \n\u3000", None, "x" * 5000, "é" * 40]
    parts = string_buffers(pa.array(texts, pa.large_string()))
    for name, a, b in zip(("keys", "shingles"), sketcher(parts), on_cpu(sketcher.sketch, parts), strict=True):
        if not (a == b).all():
            raise Differs(f"{name} of {int((a != b).sum())} documents differ from those of the CPU")


def _check_replaceable(error: str) -> None:
    """Raise the error of a GPU that was asked for, unless the CPU takes over: its keys differ."""
    kind = error.partition(":")[0]
    if kind == MissingExtra.__name__:
        raise _missing()
    if kind != Differs.__name__:
        raise UsageError(f"--backend gpu: the GPU cannot be used: {error}; fix that, or use --backend cpu, or auto")


def choose(
    backend: str, sketch: Sketch, n_cores: int, n_gpus: int | None = None, measured: Callable[..., Any] | None = None
) -> BackendChoice:
    """Choose where sketches are computed.

    `gpu`: on the GPU, unless it gives other keys than the CPU (an error if it cannot be used at all); `auto`:
    on the GPU if it is faster than all cores together.
    """
    n_gpus = count_gpus() if n_gpus is None else n_gpus
    if backend == "cpu":
        return BackendChoice("cpu", "as asked for")
    reason = obstacle(sketch)
    if backend == "gpu" and (reason or not n_gpus):
        raise UsageError(f"--backend gpu: {reason or 'this machine has no GPU'}; use --backend cpu, or auto")
    if reason or not n_gpus:
        return BackendChoice("cpu", reason or "there is no GPU")
    rates = (measured or measure)(sketch)
    if "gpu" not in rates:
        error = str(rates.get("error", "it reported nothing"))
        if backend == "gpu":
            _check_replaceable(error)
        return BackendChoice("cpu", f"the GPU cannot be used: {error}")
    cpu, gpu = rates["cpu"] * n_cores / 1e9, rates["gpu"] * n_gpus / 1e9
    measurement = f"measured: {n_cores} cores sketch {cpu:.1f} GB/s, the GPU {gpu:.1f} GB/s with the copies to it"
    if backend == "gpu":
        return BackendChoice("gpu", f"as asked for; {measurement}")
    return BackendChoice("gpu" if gpu > cpu else "cpu", measurement)


def measure(sketch: Sketch) -> dict[str, Any]:
    """Measure the bytes per second of a core and of a GPU, in another process."""
    return measure_apart(__name__, json.dumps(vars(sketch)))


def measure_here(sketch: Sketch) -> dict[str, Any]:
    """Measure bytes per second of a core and of a GPU, in this process."""
    from tamis.kernels.buffers import StringBuffers

    data = np.random.default_rng(0).integers(97, 123, _SAMPLE_BYTES, np.uint8)
    data[::6] = 32
    offsets = np.append(np.arange(0, len(data), _SAMPLE_TEXT_BYTES, dtype=np.int64), len(data))
    parts = StringBuffers(offsets, data, None)
    few = StringBuffers(offsets[: len(offsets) // 4], data, None)
    on_cpu(sketch, StringBuffers(offsets[:2], data, None))
    began = time.perf_counter()
    on_cpu(sketch, few)
    rates: dict[str, Any] = {"cpu": int(few.offsets[-1]) / (time.perf_counter() - began)}
    try:
        sketcher = GpuSketcher(sketch)
        sketcher(parts)
        began = time.perf_counter()
        sketcher(parts)
        rates["gpu"] = len(data) / (time.perf_counter() - began)
    except Exception as exc:  # whatever the libraries raise, the CPU is used then
        rates["error"] = f"{type(exc).__name__}: {str(exc)[:200]}"
    return rates


def _main() -> None:
    sketch: Any = SimpleNamespace(**json.loads(sys.argv[1]))  # a Sketch, by its fields
    print(json.dumps(measure_here(sketch)))


if __name__ == "__main__":
    _main()
