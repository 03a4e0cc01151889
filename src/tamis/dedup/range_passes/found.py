"""What is found in ranges of keys, and what the deciding process makes of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tamis.dedup.decisions import DecisionFiles
from tamis.dedup.exact.groups import equal_in_part
from tamis.dedup.fuzzy.bands import Linked, equal_marks, keys_left, star_edges_of
from tamis.dedup.range_passes.ranges import KeyRange
from tamis.dedup.records import Records
from tamis.errors import FormatError

_EQUAL = np.dtype([("number", "<u4"), ("kept", "<u4"), ("size", "<u4")])
_EDGE = np.dtype([("a", "<u4"), ("b", "<u4")])
Found = NDArray[Any]


def look_for_equal(records: Records, one: KeyRange) -> Found:
    """Documents of one range that go because another one has the same text (exact/groups.py)."""
    number, kept, size = equal_in_part(records, (one.low, one.high))
    found = np.empty(len(number), _EQUAL)
    found["number"], found["kept"], found["size"] = number, kept, size
    return found


def look_for_edges(records: Records, one: KeyRange, is_equal: NDArray[np.uint8]) -> Found:
    """Links between documents that share a key of one range of a band; before them a row with the number of heavy buckets and the heaviest."""
    a, b, n_heavy, heaviest = star_edges_of(*keys_left(records, one.k, (one.low, one.high), is_equal))
    found = np.empty(len(a) + 1, _EDGE)
    found[0] = n_heavy, heaviest
    found["a"][1:], found["b"][1:] = a, b
    return found


def equal_bits(folder: str, n_documents: int) -> NDArray[np.uint8]:
    """Return one bit per document, set if it equals an earlier one."""
    return equal_marks((found["number"] for found in iter_found(folder, _EQUAL)), n_documents)


def add_equal(folder: str, found: DecisionFiles) -> None:
    """Add all equal texts that workers reported."""
    for part in iter_found(folder, _EQUAL):
        found.add(part["number"], part["kept"], np.ones(len(part)), part["size"])


def add_edges(folder: str, linked: Linked) -> None:
    """Add all shared bands that workers reported.

    They come band after band and range after range, as from a single process.
    """
    for part in iter_found(folder, _EDGE):
        n_heavy, heaviest = part[0]
        a, b = (np.ascontiguousarray(part[name][1:]) for name in ("a", "b"))
        if len(a) and int(max(a.max(), b.max())) >= linked.n_documents:
            raise FormatError(f"{folder}: a link names no document; start over with fresh (--fresh)")
        linked.add(a, b, int(n_heavy), int(heaviest))


def iter_found(folder: str, kind: np.dtype[Any]) -> Iterator[Found]:
    """Yield the files of a pass over ranges, in the order of the ranges."""
    for name in sorted(n for n in os.listdir(folder) if n.endswith(".npy")):
        found = np.load(os.path.join(folder, name), allow_pickle=False)
        if found.dtype != kind:
            raise FormatError(f"{os.path.join(folder, name)}: not what a pass over ranges writes; start over (--fresh)")
        yield found
