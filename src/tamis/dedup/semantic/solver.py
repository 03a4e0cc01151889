"""The solver of semantic deduplication: clusters from a sample, then pairs within each cluster.

Out of core: vectors are read from the record files block by block, written once more by groups of clusters that fit
into the room, and each group is decided alone. Where all vectors fit on a GPU, they are read once and stay there
(resident.py). What is compared with what depends on the documents and the options
only, never on the room. Scratch: twice the vectors (4 bytes x dimension for each document), and 16 bytes per document.
"""

from __future__ import annotations

import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tamis.dedup.decisions import DecisionFiles
from tamis.dedup.records import Records
from tamis.dedup.semantic.greedy import Read, duplicates_in_cluster
from tamis.dedup.semantic.kmeans import BLOCK, Blocks, Floats, Options, VectorSample, fit, nearest, uniform
from tamis.dedup.semantic.products import Choice, OnTorch, Products, choose
from tamis.dedup.semantic.resident import DeviceBlocks, ResidentVectors
from tamis.dedup.semantic.vectors import VECTOR, least_cosine, nothing_to_fit
from tamis.dedup.state import StateFile
from tamis.errors import UsageError
from tamis.formats.scratch.spilled import Spilled
from tamis.memory.device_limits import DeviceLimit

if TYPE_CHECKING:
    from tamis.dedup.solver import SolverRun
    from tamis.dedup.solver_task import CompareVectors
    from tamis.dedup.state import Summary

MIN_SAMPLE = 32_768
SAMPLE_PER_CLUSTER = 64
_SORTERS = 2  # threads that order documents while others are compared
_META = np.dtype([("number", "<u4"), ("cluster", "<u4"), ("distance", "<f4"), ("rank", "<u8")])
Say = Callable[[str], Callable[[float], None]]


def compare_vectors(step: CompareVectors, run: SolverRun) -> None:
    """Decide which documents with similar vectors are removed."""
    records = Records(run.task.records)
    decisions = run.decisions(records)
    run.conclude(records, decisions, semantic_duplicates(records, decisions, step, run))


def semantic_duplicates(records: Records, decisions: DecisionFiles, step: CompareVectors, run: SolverRun) -> Summary:
    """Add the documents to be removed to `decisions` and return facts for the summary."""
    room_bytes, say = run.room_bytes, run.progress
    work = run.path("clusters")
    os.makedirs(work, exist_ok=True)
    if VECTOR not in records.types:
        return {"n_clusters": 0, "dimension": 0}
    dimension = records.types[VECTOR].itemsize // 4
    n_threads = max(1, run.task.n_threads)
    n_clusters = step.n_clusters or usual_clusters(len(records))
    options = Options(n_clusters, step.max_iter, step.tol, step.seed, step.init, step.oversampling)
    chosen = _backend(step, run, dimension)
    products = chosen.products
    summary: Summary = {"backend": products.name, "backend_why": chosen.why}
    fraction = step.fit_data_fraction
    if isinstance(products, OnTorch) and len(records) * dimension * 4 <= products.free_bytes:
        return {**summary, **_resident_duplicates(records, decisions, step, products, options, say)}
    n_sample, n_vectors = _write_sample(records, os.path.join(work, "sample.f32"), dimension, fraction, options)
    if not n_vectors:
        return {"n_clusters": 0, "dimension": dimension, **summary}
    if not n_sample:
        raise UsageError(nothing_to_fit(fraction, n_vectors))
    threads = n_threads if products.name == "cpu" else 1  # one GPU: threads would only wait for each other
    stored = Blocks(os.path.join(work, "sample.f32"), dimension, threads)
    sample: VectorSample = stored
    if isinstance(products, OnTorch) and n_sample * dimension * 4 <= products.free_bytes:
        sample = DeviceBlocks(products.hold(stored.read(0, n_sample)))
    centroids = fit(sample, options, say("clusters"), products)
    if centroids.nbytes * 2 > room_bytes:
        raise UsageError(
            f"semantic deduplication: {len(centroids):,} clusters of {dimension} numbers take {centroids.nbytes:,} "
            "bytes, more than half of "
            f"the room of {room_bytes:,}; give more --memory or fewer clusters"
        )
    nearest_of = Spilled(os.path.join(work, "nearest"))
    sizes = _assign(records, centroids, dimension, nearest_of, say("assignment"), products)
    groups = _groups(sizes, dimension * 4 + _META.itemsize, room_bytes // 3)
    spilled = Spilled(os.path.join(work, "groups"))
    _distribute(records, groups, dimension, nearest_of, spilled)
    done = 0
    for g in range(int(groups.max()) + 1):
        done += _decide_group(spilled, g, dimension, decisions, step, room_bytes // 3, products)
        say("pairs")(done / max(1, int(sizes.sum())))
    shutil.rmtree(work)
    return {
        "n_clusters": len(centroids),
        "dimension": dimension,
        "n_sample": n_sample,
        "largest_cluster": int(sizes.max()),
        **summary,
    }


def _resident_duplicates(
    records: Records, decisions: DecisionFiles, step: CompareVectors, products: OnTorch, options: Options, say: Say
) -> Summary:
    """Find the duplicates with all vectors on the device."""
    dimension = records.types[VECTOR].itemsize // 4
    there = records.column("length") >= 0
    n_vectors = int(there.sum())
    if not n_vectors:
        return {"n_clusters": 0, "dimension": dimension}
    clock = [time.monotonic()]
    vectors = ResidentVectors(records, VECTOR, dimension, products)
    clock.append(time.monotonic())
    share = _sample_share(len(records), step.fit_data_fraction, options)
    sample = np.flatnonzero(there & (uniform(np.arange(len(records)), options.seed) < share))
    if not len(sample):
        raise UsageError(nothing_to_fit(step.fit_data_fraction, n_vectors))
    centroids = fit(vectors.sample(sample), options, say("clusters"), products)
    clock.append(time.monotonic())
    cluster, distance = vectors.nearest(centroids)
    say("assignment")(1.0)
    numbers = np.flatnonzero(there)
    meta = np.empty(len(numbers), _META)
    meta["number"], meta["cluster"], meta["distance"] = numbers, cluster[numbers], distance[numbers]
    meta["rank"] = records.column("rank")[numbers]
    take = vectors.take if len(numbers) == len(records) else lambda rows: vectors.take(numbers[rows])
    clock.append(time.monotonic())
    _decide(meta, take, len(numbers), decisions, step, products, say("pairs"))
    clock.append(time.monotonic())
    phases = zip(("to the device", "clusters", "assignment", "pairs"), itertools.pairwise(clock), strict=True)
    return {
        "phase_seconds": {phase: round(end - begin, 3) for phase, (begin, end) in phases},
        "n_clusters": len(centroids),
        "dimension": dimension,
        "n_sample": len(sample),
        "largest_cluster": int(np.bincount(meta["cluster"]).max()),
    }


@dataclass(frozen=True)
class _ChosenBackend:
    backend: str
    why: str


def _backend(step: CompareVectors, run: SolverRun, dimension: int) -> Choice:
    """Choose where products are computed.

    A choice that was measured once also holds for a run resumed after a kill: another device might remove other
    documents.
    """
    file = StateFile(run.path("backend.json"), _ChosenBackend)
    earlier = file.read()
    limit = DeviceLimit(1.0, run.task.gpu_bytes)
    chosen = choose(step.backend if earlier is None else earlier.backend, dimension, run.room_bytes, limit)
    why = chosen.why if earlier is None else earlier.why
    file.write(_ChosenBackend(chosen.products.name, why))
    return Choice(chosen.products, why)


def usual_clusters(n_documents: int) -> int:
    """Return the default number of clusters: clusters of about 1,000 documents.

    Pairs then cost about as much as finding the clusters.

    >>> usual_clusters(300), usual_clusters(50_000), usual_clusters(10**8)
    (1, 50, 1000)
    """
    return min(1000, max(1, n_documents // 1000))


def fixed_blocks(
    records: Records, dimension: int
) -> Iterator[tuple[int, Floats, NDArray[np.bool_], NDArray[np.uint64]]]:
    """Yield (first number, vectors, which rows have one, ranks), BLOCK rows each, whatever the partitions were."""
    first, rows, has, rank = 0, [], [], []
    n = 0
    lengths, ranks = records.iter_column("length"), records.iter_column("rank")
    for (_, raw), (_, length), (_, order) in zip(
        records.iter_column(VECTOR, or_zeros=True), lengths, ranks, strict=True
    ):
        rows.append(np.frombuffer(raw.tobytes(), np.float32).reshape(len(raw), dimension))
        has.append(length >= 0)
        rank.append(order)
        n += len(raw)
        if n >= BLOCK:
            x, there, by = np.concatenate(rows), np.concatenate(has), np.concatenate(rank)
            whole = n // BLOCK * BLOCK
            for at in range(0, whole, BLOCK):
                yield first + at, x[at : at + BLOCK], there[at : at + BLOCK], by[at : at + BLOCK]
            first, n = first + whole, n - whole
            rows, has, rank = [x[whole:].copy()], [there[whole:]], [by[whole:]]
    if n:
        yield first, np.concatenate(rows), np.concatenate(has), np.concatenate(rank)


def _write_sample(
    records: Records, path: str, dimension: int, fraction: float | None, options: Options
) -> tuple[int, int]:
    """Write the vectors that clusters are made from; return their number, and that of all vectors."""
    share = _sample_share(len(records), fraction, options)
    n = n_vectors = 0
    with open(path, "wb") as file:
        for first, x, there, _ in fixed_blocks(records, dimension):
            chosen = there & (uniform(np.arange(first, first + len(x)), options.seed) < share)
            file.write(x[chosen].tobytes())
            n, n_vectors = n + int(chosen.sum()), n_vectors + int(there.sum())
    return n, n_vectors


def _sample_share(n_documents: int, fraction: float | None, options: Options) -> float:
    n_rows = max(MIN_SAMPLE, SAMPLE_PER_CLUSTER * options.n_clusters)
    return float(fraction) if fraction is not None else min(1.0, n_rows / max(1, n_documents))


def _assign(
    records: Records,
    centroids: Floats,
    dimension: int,
    nearest_of: Spilled,
    progress: Callable[[float], None],
    products: Products,
) -> NDArray[np.int64]:
    """Write the cluster (bucket 0) and the distance (1) of every document; return the sizes of the clusters."""
    sizes, held_centroids = np.zeros(len(centroids), np.int64), products.hold(centroids)
    for first, x, there, _ in fixed_blocks(records, dimension):
        at, distance = nearest(x, held_centroids, products)
        sizes += np.bincount(at[there], minlength=len(centroids))
        nearest_of.add(0, at.astype("<u4"))
        nearest_of.add(1, distance.astype("<f4"))
        progress((first + len(x)) / max(1, len(records)))
    return sizes


def _groups(sizes: NDArray[np.int64], row_bytes: int, room_bytes: int) -> NDArray[np.int64]:
    """Return the group of each cluster.

    Neighbouring clusters share a group as long as they fit; one that does not fit is alone.
    """
    group = np.zeros(len(sizes), np.int64)
    n_grouped = at = 0
    for cluster, n in enumerate((sizes * row_bytes).tolist()):
        if n_grouped and n_grouped + n > room_bytes:
            at, n_grouped = at + 1, 0
        group[cluster] = at
        n_grouped += n
    return group


def _distribute(
    records: Records, groups: NDArray[np.int64], dimension: int, nearest_of: Spilled, spilled: Spilled
) -> None:
    """Write the vectors of group g to bucket 2g, and their metadata to bucket 2g + 1."""
    for first, x, there, rank in fixed_blocks(records, dimension):
        meta = np.empty(len(x), _META)
        meta["number"] = np.arange(first, first + len(x))
        meta["cluster"] = nearest_of.read(0, "<u4", first, len(x))
        meta["distance"] = nearest_of.read(1, "<f4", first, len(x))
        meta["rank"] = rank
        of = groups[meta["cluster"]]
        for g in np.unique(of[there]).tolist():
            mine = there & (of == g)
            spilled.add(2 * g, x[mine])
            spilled.add(2 * g + 1, meta[mine])


def _decide_group(
    spilled: Spilled,
    group: int,
    dimension: int,
    decisions: DecisionFiles,
    step: CompareVectors,
    room_bytes: int,
    products: Products,
) -> int:
    meta = spilled.read(2 * group + 1, _META)
    vectors = Blocks(spilled.as_file(2 * group), dimension)
    in_memory = vectors.read(0, vectors.n_rows) if vectors.n_rows * dimension * 4 <= room_bytes else None
    read = vectors.rows if in_memory is None else in_memory.__getitem__
    _decide(meta, read, room_bytes // (4 * dimension), decisions, step, products)
    return len(meta)


def _decide(
    meta: Any,
    read: Read,
    room_rows: int,
    decisions: DecisionFiles,
    step: CompareVectors,
    products: Products,
    progress: Callable[[float], None] = lambda _: None,
) -> None:
    """Add the duplicates of each cluster; `meta` describes the rows that `read` returns."""
    done = 0
    for order in _orders(meta, step):
        done += len(order)
        progress(done / len(meta))
        if len(order) < 2:
            continue
        gone, partners, likeness = duplicates_in_cluster(
            order, read, least_cosine(step.eps), step.pairwise_batch_size, room_rows, products
        )
        if len(gone):
            _, back, n = np.unique(partners, return_inverse=True, return_counts=True)
            decisions.add(meta["number"][gone], meta["number"][partners], likeness, n[back] + 1)


def _orders(meta: Any, step: CompareVectors) -> Iterator[NDArray[np.int64]]:
    """Yield the rows of each cluster in order of preference; the next ones are sorted meanwhile."""
    cluster = np.ascontiguousarray(meta["cluster"])
    if len(cluster) and cluster.max() < 1 << 16:
        cluster = cluster.astype(np.uint16)  # numpy sorts these in a tenth of the time
    by_cluster = np.argsort(cluster, kind="stable")
    cuts = np.flatnonzero(np.diff(cluster[by_cluster])) + 1

    def sort(rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return rows[_order(meta[rows], step.which_to_keep, step.order_seed)]

    with ThreadPoolExecutor(_SORTERS, "tamis-order") as pool:
        yield from pool.map(sort, np.split(by_cluster, cuts))


def _order(meta: Any, which: str, seed: int) -> NDArray[np.int64]:
    """Return positions in order of preference: by rank, then hard (far from the centroid), easy (near) or random."""
    if which == "random":
        tie: Any = uniform(meta["number"], seed)
    else:
        tie = -meta["distance"] if which == "hard" else meta["distance"]
    return np.lexsort((meta["number"], tie, meta["rank"]))
