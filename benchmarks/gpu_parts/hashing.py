"""Compare exact keys and sketch keys of the CPU's and the GPU's kernels: results, speed, and the choice of `auto`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from gpu_parts import corpus

MOST_BYTES = 400_000_000


def run(texts: list[str], device: str, tiny: bool) -> dict[str, Any]:
    import numpy as np
    import pyarrow as pa

    from tamis.dedup.exact import gpu_hash
    from tamis.dedup.fuzzy import gpu_sketch
    from tamis.dedup.fuzzy.stages import Sketch
    from tamis.dedup.keys import text_hashes
    from tamis.kernels.buffers import string_buffers

    per_turn = sum(len(t.encode()) for t in texts)
    n = 100 if tiny else int(len(texts) * MOST_BYTES / per_turn)
    array = pa.array([t for _, t in corpus.marked(texts, n)], pa.large_string())
    few = array.slice(0, max(1, n // 8))
    parts, some, sketch = string_buffers(array), string_buffers(few), Sketch()
    n_bytes, n_some = int(parts.offsets[-1]), int(some.offsets[-1])
    cores = len(os.sched_getaffinity(0))
    found: dict[str, Any] = {"documents": n, "gb": round(n_bytes / 1e9, 3), "cores": cores}
    exact, found["exact_cpu_gb_per_s_per_core"] = timed(lambda: text_hashes(few), n_some)
    keys, found["sketch_cpu_gb_per_s_per_core"] = timed(lambda: gpu_sketch.on_cpu(sketch, some), n_some)
    chosen = gpu_hash.choose("auto", cores), gpu_sketch.choose("auto", sketch, cores)
    found["auto"] = {name: f"{c.backend} ({c.why})" for name, c in zip(("exact", "fuzzy"), chosen, strict=True)}
    if device == "cpu":
        return found
    import cupy

    hasher = gpu_hash.GpuHasher()
    there, found["exact_gpu_gb_per_s"] = timed(lambda: text_hashes(array, hasher), n_bytes)
    found["exact_same"] = all((a == b[: len(a)]).all() for a, b in zip(exact, there, strict=True))
    sketcher = gpu_sketch.GpuSketcher(sketch)
    there, found["sketch_gpu_gb_per_s"] = timed(lambda: sketcher(parts), n_bytes)
    found["sketch_same"] = all((a == b[: len(a)]).all() for a, b in zip(keys, there, strict=True))
    copied, found["copy_gb_per_s"] = timed(
        lambda: cupy.asarray(parts.data[:n_bytes]), n_bytes, cupy.cuda.Device().synchronize
    )
    starts, ends = (cupy.asarray(x) for x in parts.spans())
    plan = sketcher._run._plan
    rows = len(starts)
    out = cupy.empty((rows, sketch.bands), cupy.uint64), cupy.empty(rows, cupy.int64)
    arguments = (copied, starts, ends, np.int64(rows), np.int32(plan.n), plan.power, plan.seed, *out)
    _, found["sketch_gpu_on_device_gb_per_s"] = timed(
        lambda: sketcher._kernel((min(rows, 1 << 16),), (128,), arguments), n_bytes, cupy.cuda.Device().synchronize
    )
    return found


def timed(work: Callable[[], Any], n_bytes: int, wait: Callable[[], Any] = lambda: None) -> tuple[Any, float]:
    """Return the result, and GB/s of the faster of two runs after a first one."""
    work()
    wait()
    best = float("inf")
    for _ in range(2):
        began = time.perf_counter()
        given = work()
        wait()
        best = min(best, time.perf_counter() - began)
    return given, round(n_bytes / best / 1e9, 3)
