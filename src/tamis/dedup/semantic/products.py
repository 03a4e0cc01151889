"""Products of unit vectors, which are all the work of semantic deduplication: on the CPU (BLAS), or on a GPU (torch).

Both do the same products of the same shapes in float32, so that on one kind of device the same documents go, whatever
the memory. torch is imported where it was chosen, in the process that decides, and nowhere else.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tamis.errors import MissingExtra, UsageError
from tamis.memory.device_limits import DeviceLimit, limit_torch
from tamis.memory.gpu import count_gpus

HOST_BYTES = 2_000_000_000  # torch and CUDA take 0.8 GB of a process, and as much again while they start
_TRIED = (4096, 1024)  # rows and centroids of a product that is measured
Floats = NDArray[np.float32]


class Products(Protocol):
    name: str

    def hold(self, vectors: Floats) -> Any:
        """Move vectors to where products are computed, for many calls of `best`."""

    def best(self, x: Floats, held_rows: Any) -> tuple[NDArray[np.int64], Floats]:
        """Return, for each row, the vector that it resembles most, and the cosine."""

    def inside(self, x: Floats) -> Floats:
        """Return the cosines of all pairs of rows."""


class OnCpu:
    name = "cpu"

    def hold(self, vectors: Floats) -> Any:
        return vectors

    def best(self, x: Floats, held_rows: Any) -> tuple[NDArray[np.int64], Floats]:
        likeness = x @ held_rows.T
        at = likeness.argmax(axis=1)
        return at, likeness[np.arange(len(x)), at]

    def inside(self, x: Floats) -> Floats:
        product: Floats = x @ x.T
        return product


CPU = OnCpu()


class OnTorch:
    """`kind`: "cuda", or "cpu" (for tests).

    Products in full float32: shorter floats would take others for duplicates.
    """

    def __init__(self, kind: str, limit: DeviceLimit | None = None) -> None:
        try:
            import torch
        except ImportError:
            raise MissingExtra("--backend gpu", "models") from None
        self._torch, self._device, self.name = torch, torch.device(kind), "gpu" if kind == "cuda" else kind
        if kind == "cuda":
            torch.backends.cuda.matmul.allow_tf32 = False
            limit_torch(torch, limit or DeviceLimit())

    def hold(self, vectors: Floats) -> Any:
        return self._torch.from_numpy(np.ascontiguousarray(vectors)).to(self._device)

    def best(self, x: Floats, held_rows: Any) -> tuple[NDArray[np.int64], Floats]:
        with self._torch.inference_mode():
            likeness = (
                self.hold(x) @ (held_rows if isinstance(held_rows, self._torch.Tensor) else self.hold(held_rows)).T
            )
            top, at = likeness.max(dim=1)
            return at.cpu().numpy(), top.cpu().numpy()

    def inside(self, x: Floats) -> Floats:
        with self._torch.inference_mode():
            own = self.hold(x)
            product: Floats = (own @ own.T).cpu().numpy()
            return product


@dataclass(frozen=True)
class Choice:
    """Where products are made, and why, as a sentence."""

    products: Products
    why: str


def choose(
    backend: str,
    dimension: int,
    room_bytes: int,
    limit: DeviceLimit | None = None,
    n_gpus: int | None = None,
    make: Callable[[], Products] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Choice:
    """Resolve `auto` to whichever is faster here, by timing a product of each.

    The CPU where there is no GPU, or no memory to start one.
    """
    make = make or (lambda: OnTorch("cuda", limit))
    n_gpus = count_gpus() if n_gpus is None else n_gpus
    if backend == "cpu":
        return Choice(CPU, "as asked for")
    if backend == "gpu":
        if not n_gpus:
            raise UsageError("--backend gpu: this machine has no GPU; use --backend cpu, or auto")
        return Choice(_make_or_refuse(make), "as asked for")
    if not n_gpus:
        return Choice(CPU, "there is no GPU")
    if room_bytes < HOST_BYTES:
        return Choice(
            CPU, f"starting a GPU takes {HOST_BYTES / 1e9:.0f} GB of memory, and there are {room_bytes / 1e9:.1f}"
        )
    try:
        gpu = _make_or_refuse(make)
    except UsageError as exc:
        return Choice(CPU, f"the GPU cannot be used ({exc})")
    seconds = {p.name: _seconds(p, dimension, clock) for p in (CPU, gpu)}
    fast, slow = (gpu, CPU) if seconds[gpu.name] < seconds[CPU.name] else (CPU, gpu)
    times = seconds[slow.name] / max(seconds[fast.name], 1e-9)
    return Choice(fast, f"measured: {times:.1f} times as fast as the {slow.name} here")


def _make_or_refuse(make: Callable[[], Products]) -> Products:
    try:
        return make()
    except (ImportError, RuntimeError, MemoryError, OSError) as exc:
        raise UsageError(
            f"--backend gpu: torch cannot use the GPU ({type(exc).__name__}: {str(exc)[:200]}); it needs "
            f"{HOST_BYTES / 1e9:.0f} GB of --memory, "
            "and a torch with CUDA; or use --backend cpu"
        ) from None


def _seconds(products: Products, dimension: int, clock: Callable[[], float]) -> float:
    """Measure the seconds of a typical product, including copies.

    The second one counts, because the first also initializes things.
    """
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((n, dimension), np.float32) for n in _TRIED)
    held_rows = products.hold(y)
    products.best(x, held_rows)
    began = clock()
    products.best(x, held_rows)
    return clock() - began
