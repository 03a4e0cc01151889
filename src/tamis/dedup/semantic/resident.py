"""All vectors of a semantic deduplication in the memory of a device: read once, and never written again.

Does what the solver does out of core, with products of the same shapes, so that the same documents go. Copies to the
device overlap with reading: several threads read record batches into pinned buffers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tamis.dedup.records import Records
from tamis.dedup.semantic.kmeans import BLOCK, Floats
from tamis.dedup.semantic.products import OnTorch, Products

N_READERS = 8


class DeviceBlocks:
    """A sample on a device, in blocks of BLOCK rows."""

    def __init__(self, vectors: Any) -> None:
        self._vectors = vectors
        self.n_rows = len(vectors)

    def map(self, work: Callable[[int, Any], Any]) -> Iterator[Any]:
        for start in range(0, self.n_rows, BLOCK):
            yield work(start, self._vectors[start : start + BLOCK])

    def rows(self, rows: NDArray[np.int64]) -> Floats:
        import torch

        some: Floats = self._vectors[torch.from_numpy(rows).to(self._vectors.device)].cpu().numpy()
        return some

    def sums(self, centroids: Floats, products: Products) -> tuple[NDArray[np.float64], float]:
        """Return the sums of `VectorSample.sums`, added up by products with a matrix of ones and zeros.

        Additions that atomics order would differ from run to run.
        """
        import torch

        with torch.inference_mode():
            held = products.hold(centroids)
            numbers = torch.arange(len(centroids), device=held.device)[:, None]
            sums = torch.zeros(held.shape, dtype=torch.float64, device=held.device)
            total = torch.zeros((), dtype=torch.float64, device=held.device)
            for start in range(0, self.n_rows, BLOCK):
                block = self._vectors[start : start + BLOCK]
                top, at = (block @ held.T).max(dim=1)
                sums += (numbers == at[None, :]).to(torch.float32) @ block
                total += (1.0 - top).sum(dtype=torch.float64)
            return sums.cpu().numpy(), float(total)


class ResidentVectors:
    """The vectors of all documents on a device, by document number; zeros for a document without one."""

    def __init__(self, records: Records, name: str, dimension: int, products: OnTorch) -> None:
        import torch

        self._torch, self._products = torch, products
        empty = products.hold(np.empty((0, dimension), np.float32))
        self.rows = torch.zeros((len(records), dimension), dtype=torch.float32, device=empty.device)
        self._pinned = empty.device.type == "cuda"
        self._buffers = threading.local()
        records.map_batches(name, self._load, N_READERS)

    def _load(self, first: int, n: int, read: Callable[[Any], None]) -> None:
        if n == 0:
            return
        buffer = getattr(self._buffers, "rows", None)
        if buffer is None or len(buffer) < n:
            buffer = self._torch.empty((n, self.rows.shape[1]), dtype=self._torch.float32, pin_memory=self._pinned)
            self._buffers.rows = buffer
        read(buffer[:n].numpy().reshape(-1))
        self.rows[first : first + n].copy_(buffer[:n])

    def sample(self, numbers: NDArray[np.int64]) -> DeviceBlocks:
        return DeviceBlocks(self.take(numbers))

    def take(self, numbers: NDArray[np.int64]) -> Any:
        return self._products.take(self.rows, numbers)

    def nearest(self, centroids: Floats) -> tuple[NDArray[np.int64], Floats]:
        """Return the cluster of each document, and its distance to the centroid."""
        torch = self._torch
        with torch.inference_mode():
            held = self._products.hold(centroids)
            at = torch.empty(len(self.rows), dtype=torch.int64, device=held.device)
            top = torch.empty(len(self.rows), dtype=torch.float32, device=held.device)
            for start in range(0, len(self.rows), BLOCK):
                here = slice(start, start + BLOCK)
                top[here], at[here] = (self.rows[here] @ held.T).max(dim=1)
            return at.cpu().numpy(), 1.0 - top.cpu().numpy()
