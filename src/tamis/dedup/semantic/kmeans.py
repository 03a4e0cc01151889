"""Spherical k-means over unit vectors in a file, in blocks of a fixed size.

The result depends neither on memory nor on threads.

Covers: seeding (k-means|| or at random, both by hashes of row numbers), Lloyd's iterations, assignment of a block.
Memory: the centroids and some blocks of BLOCK rows for each thread. Work: n * k * dimension * 2 for each pass over the
n rows. Source of the seeding: Bahmani et al., "Scalable K-Means++" (2012).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tamis.dedup.semantic.products import CPU, Products
from tamis.formats.scratch.stored_arrays import read_into

BLOCK = 4096  # rows of one product: part of the result, since sums of floats depend on how they are cut
_ROUNDS = 5
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Options:
    n_clusters: int
    max_iter: int = 300
    tol: float = 1e-4  # of the mean distance: iterations end when it falls by less than this share
    seed: int = 42
    init: str = "k-means||"
    oversampling: float = 2.0


class VectorSample(Protocol):
    """The vectors that clusters are made from."""

    n_rows: int

    def map(self, work: Callable[[int, Any], Any]) -> Iterator[Any]:
        """Yield `work(first row, block)` of all blocks in order."""

    def rows(self, rows: NDArray[np.int64]) -> Floats:
        """Return these rows."""

    def sums(self, centroids: Floats, products: Products) -> tuple[NDArray[np.float64], float]:
        """Return the sum of the vectors nearest to each centroid, and the sum of all distances."""


class Blocks:
    """Unit vectors in a raw file, read block by block with pread (mapped pages would count as memory)."""

    def __init__(self, path: str, dimension: int, n_threads: int = 1) -> None:
        self.path, self.dimension, self.n_threads = path, dimension, n_threads
        self.n_rows = os.path.getsize(path) // (4 * dimension)

    def __iter__(self) -> Iterator[Floats]:
        for start in range(0, self.n_rows, BLOCK):
            yield self.read(start)

    def read(self, start: int, n: int = BLOCK) -> Floats:
        n = min(n, self.n_rows - start)
        out = np.empty((n, self.dimension), np.float32)
        read_into(self.path, start * self.dimension * 4, out.reshape(-1))
        return out

    def rows(self, rows: NDArray[np.int64]) -> Floats:
        """Read these rows, one by one."""
        return np.concatenate([np.empty((0, self.dimension), np.float32), *(self.read(int(row), 1) for row in rows)])

    def map(self, work: Callable[[int, Floats], Any]) -> Iterator[Any]:
        """Yield `work(first row, block)` of all blocks in order, computed by `n_threads` threads."""
        starts = range(0, self.n_rows, BLOCK)
        if self.n_threads == 1:
            for start in starts:
                yield work(start, self.read(start))
            return
        with ThreadPoolExecutor(self.n_threads) as pool:
            waiting: list[Any] = []
            for start in starts:
                waiting.append(pool.submit(lambda s: work(s, self.read(s)), start))
                if len(waiting) > self.n_threads:
                    yield waiting.pop(0).result()
            for last in waiting:
                yield last.result()

    def sums(self, centroids: Floats, products: Products) -> tuple[NDArray[np.float64], float]:
        sums, total, held = np.zeros(centroids.shape, np.float64), 0.0, products.hold(centroids)
        for of_block, lost in self.map(lambda _, x: _gathered(x, len(centroids), held, products)):
            sums += of_block
            total += lost
        return sums, total


def fit(
    sample: VectorSample, options: Options, progress: Callable[[float], None] | None = None, products: Products = CPU
) -> Floats:
    """Return the centroids (unit vectors; fewer if there are not so many rows)."""
    centroids = _seeds(sample, options, products)
    before = np.inf
    for i in range(options.max_iter):
        sums, total = sample.sums(centroids, products)
        # A cluster that lost all its rows stays where it was: it costs nothing and may win some again.
        norm = np.sqrt(np.einsum("ij,ij->i", sums, sums))
        moved = norm > 0
        centroids[moved] = (sums[moved] / norm[moved, None]).astype(np.float32)
        if progress is not None:
            progress((i + 1) / options.max_iter)
        if before - total <= options.tol * max(total, 1e-12):
            break
        before = total
    return centroids


def nearest(x: Floats, held_centroids: Any, products: Products = CPU) -> tuple[NDArray[np.int64], Floats]:
    """Return the cluster of each row, and its distance (1 - cosine) to that centroid.

    `held_centroids`: the centroids, as `products.hold` returns them.
    """
    at, likeness = products.best(x, held_centroids)
    return at, (1.0 - likeness).astype(np.float32)


def _gathered(x: Floats, n_clusters: int, held_centroids: Any, products: Products) -> tuple[NDArray[np.float64], float]:
    at, distance = nearest(x, held_centroids, products)
    order = np.argsort(at, kind="stable")
    counts = np.bincount(at, minlength=n_clusters)
    used = np.flatnonzero(counts)
    starts = np.concatenate([[0], np.cumsum(counts[used])[:-1]])
    sums = np.zeros((n_clusters, x.shape[1]), np.float64)
    sums[used] = np.add.reduceat(x[order].astype(np.float64), starts, axis=0)
    return sums, float(distance.sum(dtype=np.float64))


def _seeds(sample: VectorSample, options: Options, products: Products) -> Floats:
    """Return the initial centroids: rows of the sample."""
    k = min(options.n_clusters, sample.n_rows)
    if options.init == "random":
        chosen = np.sort(np.argsort(uniform(np.arange(sample.n_rows), options.seed), kind="stable")[:k])
        return sample.rows(chosen)
    first = int(np.argmin(uniform(np.arange(sample.n_rows), options.seed)))
    chosen = np.array([first])
    fresh = sample.rows(chosen)
    distance = np.full(sample.n_rows, np.inf)
    for turn in range(1, _ROUNDS + 1):
        held_seeds = products.hold(fresh)
        parts = sample.map(lambda start, x: (start, 1.0 - products.best(x, held_seeds)[1]))  # noqa: B023 - used within the turn
        for start, result in parts:
            here = slice(start, start + len(result))
            distance[here] = np.minimum(distance[here], np.maximum(result, 0.0))
        total = distance.sum()
        if total <= 0:
            break
        odds = options.oversampling * k * distance / total
        new = np.flatnonzero(uniform(np.arange(sample.n_rows), options.seed + turn) < odds)
        new = np.setdiff1d(new, chosen)
        if not len(new):
            continue
        fresh = sample.rows(new)
        chosen = np.union1d(chosen, new)
    return _reduced(sample.rows(chosen), sample, k, options.seed, products)


def _reduced(candidates: Floats, sample: VectorSample, k: int, seed: int, products: Products) -> Floats:
    """Choose k of the candidates by k-means++, each weighted by the rows that are nearest to it."""
    if len(candidates) <= k:
        missing = k - len(candidates)
        more = np.argsort(uniform(np.arange(sample.n_rows), seed - 1), kind="stable")[:missing]
        return np.concatenate([candidates, sample.rows(np.sort(more))]) if missing else candidates
    weight = np.zeros(len(candidates), np.int64)
    held_candidates = products.hold(candidates)
    for n in sample.map(lambda _, x: np.bincount(products.best(x, held_candidates)[0], minlength=len(candidates))):
        weight += n
    draws = uniform(np.arange(k), seed + 1000)
    chosen = [int(weight.argmax())]
    distance = np.maximum(1.0 - products.cosines(held_candidates, chosen[0]), 0.0).astype(np.float64)
    for i in range(1, k):
        odds = np.cumsum(weight * distance)
        if odds[-1] <= 0:
            rest = np.setdiff1d(np.arange(len(candidates)), chosen)[: k - len(chosen)]
            chosen += rest.tolist()
            break
        chosen.append(int(np.searchsorted(odds, draws[i] * odds[-1], side="right").clip(0, len(candidates) - 1)))
        distance = np.minimum(distance, np.maximum(1.0 - products.cosines(held_candidates, chosen[-1]), 0.0))
    chosen_rows: Floats = candidates[np.array(chosen)]
    return chosen_rows


def uniform(numbers: NDArray[Any], seed: int) -> NDArray[np.float64]:
    """Return a number in [0, 1) for each integer, the same everywhere (splitmix64)."""
    with np.errstate(over="ignore"):
        z = numbers.astype(np.uint64) + np.uint64((seed * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) & (2**64 - 1))
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53
