"""From band keys to components: documents that share a key of a band are linked, band after band, part after part.

Memory: 4 bytes per document for the parents, one for "equal to another one", and the keys of one part of one band. Only
one of several equal documents is linked: the others go where it goes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tamis.dedup.decisions import Decisions
from tamis.dedup.records import Array, Records, parts_of
from tamis.dedup.sorting import runs, sort_pairs
from tamis.kernels.sketch.components import link, roots
from tamis.kernels.sketch.sorting import star_edges

BYTES_PER_KEY = 40  # a key and a number (12), the room to sort them (12), edges (8), slack
HEAVY_BUCKET = 100_000
Progress = Callable[[float], None]


@dataclass
class Linked:
    """Parents of the union-find, and what was met on the way."""

    parents: NDArray[np.uint32]
    n_edges: int = 0
    n_heavy: int = 0
    heaviest: int = 0

    def save(self, path: str) -> None:
        with open(path + ".tmp", "wb") as file:
            np.savez(file, parents=self.parents, counts=np.array([self.n_edges, self.n_heavy, self.heaviest]))
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".tmp", path)

    @classmethod
    def load(cls, path: str) -> Linked:
        with np.load(path, allow_pickle=False) as stored:
            return cls(stored["parents"], *(int(n) for n in stored["counts"]))


def link_bands(
    linked: Linked,
    records: Records,
    bands: list[int],
    equal: Decisions,
    room_bytes: int,
    progress: Progress | None = None,
) -> None:
    """Link the documents that share a key in these bands (numbers of key columns); those in `equal` are left out."""
    is_equal = np.zeros(len(records), bool)
    is_equal[equal.number] = True
    room = max(room_bytes - linked.parents.nbytes - is_equal.nbytes, room_bytes // 8)
    steps = [(band, part) for band in bands for part in parts_of(len(records) * BYTES_PER_KEY, room)]
    for i, (band, part) in enumerate(steps):
        keys, numbers = records.keys(band, part)
        left = ~is_equal[numbers]
        keys, numbers = keys[left], numbers[left]
        sort_pairs(keys, numbers)
        _link_sorted(linked, keys, numbers)
        if progress is not None:
            progress((i + 1) / len(steps))


def _link_sorted(linked: Linked, keys: Array, numbers: Array) -> None:
    starts, ends = runs(keys)
    sizes = ends - starts
    if not len(sizes):
        return
    linked.n_heavy += int(np.count_nonzero(sizes > HEAVY_BUCKET))
    linked.heaviest = max(linked.heaviest, int(sizes.max()))
    n = int(sizes.sum()) - len(sizes)
    a, b = np.empty(n, np.uint32), np.empty(n, np.uint32)
    n = star_edges(keys, numbers, a, b)
    link(linked.parents, a[:n], b[:n])
    linked.n_edges += n


def clusters(linked: Linked) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """(number, root) of every document that is linked to another one, by root and number."""
    roots(linked.parents)
    member = np.flatnonzero(linked.parents != np.arange(len(linked.parents), dtype=np.uint32)).astype(np.uint32)
    root = linked.parents[member]
    heads = np.unique(root)
    number, root = np.concatenate([heads, member]), np.concatenate([heads, root])
    order = np.lexsort((number, root))
    return number[order], root[order]


def component_facts(root: Any) -> dict[str, Any]:
    """Sizes of the components before verification, for the report."""
    from tamis.dedup.solver import histogram

    sizes = np.unique(root, return_counts=True)[1] if len(root) else np.empty(0, np.int64)
    return {
        "n_components": len(sizes),
        "largest_component": int(sizes.max()) if len(sizes) else 0,
        "component_sizes": histogram(sizes),
    }
