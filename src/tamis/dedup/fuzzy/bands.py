"""From band keys to components: documents that share a key of a band are linked, band after band, part after part.

Memory: 4 bytes per document for the parents, a bit for "equal to another one", and the keys of one part of one band.
Where 4 bytes per document are too many, edges go to a file (8 bytes each) and only documents that have one get a
parent. Of several equal documents one is linked: the others go where it goes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tamis import files
from tamis.dedup.decisions import LARGE, histogram
from tamis.dedup.planning import BYTES_PER_KEY
from tamis.dedup.records import Array, Records, parts_of
from tamis.dedup.sorting import cuts_between, runs, sort_pairs
from tamis.errors import BudgetError, FormatError
from tamis.formats.scratch.spilled import Spilled
from tamis.kernels.sketch.components import link, new_parents, roots
from tamis.kernels.sketch.sorting import star_edges
from tamis.memory.release import thread_stack
from tamis.sizes import format_size

if TYPE_CHECKING:
    from tamis.dedup.state import Summary

HEAVY_BUCKET = 100_000
_PARENTS_SHARE = 0.4  # of the room: above it edges are written to a file
_CHUNK = 1 << 20
Progress = Callable[[float], None]
Numbers = NDArray[np.uint32]


class Linked:
    """Links found so far, kept in `folder` between passes: parents of a union-find, or a file of edges."""

    def __init__(self, folder: str, n_documents: int, room_bytes: int) -> None:
        self.folder, self.n_documents, self.room_bytes = folder, n_documents, room_bytes
        self.n_edges = self.n_heavy = self.heaviest = 0
        self.spills = 4 * n_documents > _PARENTS_SHARE * room_bytes
        self.parents: Numbers | None = None if self.spills else new_parents(n_documents)
        self._edges: Spilled | None = None

    # -- between passes -----------------------------------------------------------------------------------------------
    @property
    def _path(self) -> str:
        return os.path.join(self.folder, "linked.npz")

    def begin(self) -> None:
        """Forget what a pass that did not end has added."""
        if os.path.exists(self._path):
            with np.load(self._path, allow_pickle=False) as stored:
                self.n_edges, self.n_heavy, self.heaviest = (int(n) for n in stored["counts"])
                self.parents = None if self.spills else stored["parents"]
        if self.spills:
            self._edges = Spilled(os.path.join(self.folder, "edges"), fresh=not self.n_edges)
            self._edges.truncate(0, 8 * self.n_edges)
            if self._edges.n_bytes(0) != 8 * self.n_edges:
                raise FormatError(f"{self.folder}: links of an earlier pass are gone; start over with fresh (--fresh)")

    def save(self) -> None:
        parents = self.parents if self.parents is not None else np.empty(0, np.uint32)
        with files.replacing(self._path) as file:
            np.savez(file, parents=parents, counts=np.array([self.n_edges, self.n_heavy, self.heaviest]))

    # -- linking ------------------------------------------------------------------------------------------------------
    def add_bands(
        self, records: Records, bands: list[int], equal: Iterable[Numbers], progress: Progress | None, threads: int = 1
    ) -> None:
        """Link documents that share a key in these bands (numbers of key columns); those in `equal` are left out.

        Several threads read and sort where all bands fit together; they are linked in the same order.
        """
        is_equal = equal_marks(equal, self.n_documents)
        held_bytes = is_equal.nbytes + (self.parents.nbytes if self.parents is not None else 0)
        room = max(self.room_bytes - held_bytes, self.room_bytes // 8)
        steps = [(band, part) for band in bands for part in parts_of(len(records) * BYTES_PER_KEY, room)]

        def sorted_keys(step: tuple[int, tuple[int, int]]) -> tuple[Array, Array]:
            return keys_left(records, *step, is_equal)

        with contextlib.ExitStack() as scope:
            key_parts: Iterator[tuple[Array, Array]] = map(sorted_keys, steps)
            if threads > 1 and len(steps) * len(records) * BYTES_PER_KEY <= room:
                thread_stack()
                key_parts = scope.enter_context(ThreadPoolExecutor(threads)).map(sorted_keys, steps)
            for i, (keys, numbers) in enumerate(key_parts):
                self.add(*star_edges_of(keys, numbers))
                if progress is not None:
                    progress((i + 1) / len(steps))

    def add(self, a: Numbers, b: Numbers, n_heavy: int, heaviest: int) -> None:
        """Link these pairs; `n_heavy`, `heaviest`: of the buckets that they come from (see star_edges_of)."""
        self.n_heavy += n_heavy
        self.heaviest = max(self.heaviest, heaviest)
        self.n_edges += len(a)
        if self.parents is not None:
            link(self.parents, a, b)
        elif len(a):
            assert self._edges is not None
            self._edges.add(0, np.stack([a, b], axis=1))

    # -- components ---------------------------------------------------------------------------------------------------
    def clusters(self) -> NDArray[np.uint64]:
        """Return root << 32 | number of every document that is linked to another one, ascending."""
        if self.parents is None:
            return self._spilled_clusters()
        return _pairs(self.parents, None)

    def _spilled_clusters(self) -> NDArray[np.uint64]:
        """Return what `clusters` does, with parents only for documents that have an edge."""
        has_edge = np.zeros(self.n_documents, bool)
        for edges in self._iter_edges():
            has_edge[edges.ravel()] = True
        nodes = np.flatnonzero(has_edge).astype(np.uint32)
        del has_edge
        if nodes.nbytes * 2 > self.room_bytes:
            needed = nodes.nbytes * 2 + 200_000_000
            raise BudgetError(
                f"deduplication: {len(nodes):,} documents share a band with another one, which takes "
                f"{format_size(needed)}; give "
                f"--memory {-(-needed // 600_000_000)}GB, or more rows per band"
            )
        parents = new_parents(len(nodes))
        for edges in self._iter_edges():
            positions = np.searchsorted(nodes, edges.ravel()).astype(np.uint32).reshape(-1, 2)
            link(parents, np.ascontiguousarray(positions[:, 0]), np.ascontiguousarray(positions[:, 1]))
        return _pairs(parents, nodes)

    def _iter_edges(self) -> Iterable[NDArray[np.uint32]]:
        assert self._edges is not None
        for first in range(0, 2 * self.n_edges, 2 * _CHUNK):
            yield self._edges.read(0, np.uint32, first, 2 * _CHUNK).reshape(-1, 2)


def equal_marks(equal: Iterable[Numbers], n_documents: int) -> NDArray[np.uint8]:
    """Return one bit per document, set for those whose numbers are given."""
    marks = np.zeros(-(-n_documents // 8), np.uint8)
    for numbers in equal:
        np.bitwise_or.at(marks, numbers >> 3, np.uint8(1) << (numbers & 7).astype(np.uint8))
    return marks


def keys_left(
    records: Records, band: int, part: tuple[int, int], is_equal: NDArray[np.uint8]
) -> tuple[NDArray[np.uint64], Numbers]:
    """Return the keys of one part of a band, sorted, with the numbers of their documents.

    Those marked as equal to another one are left out.
    """
    keys, numbers = records.keys(band, part)
    remains = (is_equal[numbers >> 3] >> (numbers & 7).astype(np.uint8)) & 1 == 0
    keys, numbers = keys[remains], numbers[remains]
    sort_pairs(keys, numbers)
    return keys, numbers


def star_edges_of(keys: Array, numbers: Array) -> tuple[Numbers, Numbers, int, int]:
    """Pair each document with the first one that has the same key, for sorted keys.

    Also returns how many buckets are heavy, and the size of the largest.
    """
    starts, ends = runs(keys)
    sizes = ends - starts
    if not len(sizes):
        return np.empty(0, np.uint32), np.empty(0, np.uint32), 0, 0
    n = int(sizes.sum()) - len(sizes)
    a, b = np.empty(n, np.uint32), np.empty(n, np.uint32)
    n = star_edges(keys, numbers, a, b)
    return a[:n], b[:n], int(np.count_nonzero(sizes > HEAVY_BUCKET)), int(sizes.max())


def _pairs(parents: Numbers, nodes: Numbers | None) -> NDArray[np.uint64]:
    """Return the components of at least two as root << 32 | number; `nodes` names the positions of the parents."""
    roots(parents)
    member = np.flatnonzero(parents != np.arange(len(parents), dtype=np.uint32)).astype(np.uint32)
    root = parents[member]
    heads = np.unique(root)
    number, root = np.concatenate([heads, member]), np.concatenate([heads, root])
    if nodes is not None:
        number, root = nodes[number], nodes[root]
    pairs: NDArray[np.uint64] = root.astype(np.uint64) << np.uint64(32) | number
    pairs.sort()
    return pairs


def component_facts(pairs: Any) -> Summary:
    """Return the sizes of the components before verification, for the report."""
    sizes = np.diff(cuts_between(pairs >> np.uint64(32)))
    return {
        "n_components": len(sizes),
        "largest_component": int(sizes.max()) if len(sizes) else 0,
        "component_sizes": histogram(np.bincount(np.minimum(sizes, LARGE))) if len(sizes) else {},
    }
