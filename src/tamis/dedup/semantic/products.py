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
from tamis.memory.device_limits import HOST_BYTES, DeviceLimit, limit_torch
from tamis.memory.gpu import count_gpus

_TRIED = (4096, 1024)  # rows and centroids of a product that is measured
_WORKING_BYTES = 4_000_000_000  # of a device, for products, besides the vectors
Floats = NDArray[np.float32]
Pairs = tuple[NDArray[np.int64], NDArray[np.int64], Floats]


class Products(Protocol):
    name: str

    def hold(self, vectors: Floats) -> Any:
        """Move vectors to where products are computed, for many calls of `best`."""

    def best(self, x: Floats, held_rows: Any) -> tuple[NDArray[np.int64], Floats]:
        """Return, for each row, the vector that it resembles most, and the cosine."""

    def cosines(self, held_rows: Any, row: int) -> Floats:
        """Return the cosine of one of the rows with each of them."""

    def pairs_inside(self, x: Any, threshold: float) -> Pairs:
        """Return (row, earlier row, cosine) of the pairs of rows from this cosine on, ordered by rows."""

    def take(self, x: Any, rows: NDArray[Any]) -> Any:
        """Return some rows, given by numbers or by a mask, where `x` is."""

    def join(self, parts: list[Any]) -> Any:
        """Return the rows of some arrays as one array, where they are."""


class OnCpu:
    name = "cpu"

    def hold(self, vectors: Floats) -> Any:
        return vectors

    def best(self, x: Floats, held_rows: Any) -> tuple[NDArray[np.int64], Floats]:
        likeness = x @ held_rows.T
        positions = likeness.argmax(axis=1)
        return positions, likeness[np.arange(len(x)), positions]

    def cosines(self, held_rows: Any, row: int) -> Floats:
        product: Floats = held_rows @ held_rows[row]
        return product

    def pairs_inside(self, x: Any, threshold: float) -> Pairs:
        product = x @ x.T
        row, earlier = np.nonzero(np.tril(product >= threshold, -1))
        return row, earlier, product[row, earlier]

    def take(self, x: Any, rows: NDArray[Any]) -> Any:
        return x[rows]

    def join(self, parts: list[Any]) -> Any:
        return np.concatenate(parts)


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
        self._limit = limit or DeviceLimit()
        self._torch, self._device, self.name = torch, torch.device(kind), "gpu" if kind == "cuda" else kind
        if kind == "cuda":
            torch.backends.cuda.matmul.allow_tf32 = False
            limit_torch(torch, self._limit)

    @property
    def free_bytes(self) -> int:
        """Memory of the device that is left for vectors; 0 for the CPU, whose memory is the host's."""
        if self._device.type != "cuda":
            return 0
        free, total = self._torch.cuda.mem_get_info()
        return max(0, min(int(free), self._limit.bytes_of(int(total))) - _WORKING_BYTES)

    def hold(self, vectors: Any) -> Any:
        if isinstance(vectors, self._torch.Tensor):
            return vectors
        return self._torch.from_numpy(np.ascontiguousarray(vectors)).to(self._device)

    def best(self, x: Any, held_rows: Any) -> tuple[NDArray[np.int64], Floats]:
        with self._torch.inference_mode():
            top, at = (self.hold(x) @ self.hold(held_rows).T).max(dim=1)
            return at.cpu().numpy(), top.cpu().numpy()

    def cosines(self, held_rows: Any, row: int) -> Floats:
        with self._torch.inference_mode():
            product: Floats = (held_rows @ held_rows[row]).cpu().numpy()
            return product

    def pairs_inside(self, x: Any, threshold: float) -> Pairs:
        pairs = self.some_pairs_inside(x, threshold)
        assert pairs is not None
        return pairs

    def some_pairs_inside(self, x: Any, threshold: float, max_pairs: int | None = None) -> Pairs | None:
        """Return what `pairs_inside` does, or None for more than `max_pairs`."""
        with self._torch.inference_mode():
            own = self.hold(x)
            product = own @ own.T
            pairs = (product >= threshold).tril_(-1).nonzero()
            if max_pairs is not None and len(pairs) > max_pairs:
                return None
            cosines = product[pairs[:, 0], pairs[:, 1]].cpu().numpy()
            places = pairs.cpu().numpy()
            return np.ascontiguousarray(places[:, 0]), np.ascontiguousarray(places[:, 1]), cosines

    def take(self, x: Any, rows: NDArray[Any]) -> Any:
        return x[self._torch.from_numpy(rows).to(self._device)] if isinstance(x, self._torch.Tensor) else x[rows]

    def join(self, parts: list[Any]) -> Any:
        return self._torch.cat([self.hold(part) for part in parts])


def start_device(gpu_bytes: int) -> None:
    """Load torch and have CUDA ready for products."""
    products = OnTorch("cuda", DeviceLimit(1.0, gpu_bytes))
    vectors = np.zeros((2, 8), np.float32)
    products.best(vectors, products.hold(vectors))


@dataclass(frozen=True)
class Choice:
    """The device that computes products, and the reason, as a sentence."""

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
