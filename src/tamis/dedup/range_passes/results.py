"""The results of passes over ranges of keys, one file per range, and their way into the solver's decisions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tamis.dedup.decisions import DecisionFiles
from tamis.errors import FormatError

if TYPE_CHECKING:
    from tamis.dedup.fuzzy.bands import Linked

EQUAL = np.dtype([("number", "<u4"), ("kept", "<u4"), ("size", "<u4")])
EDGE = np.dtype([("a", "<u4"), ("b", "<u4")])
Rows = NDArray[Any]


def read_results(folder: str, dtype: np.dtype[Any]) -> Iterator[Rows]:
    """Yield the files of a pass over ranges, in the order of the ranges."""
    for name in sorted(n for n in os.listdir(folder) if n.endswith(".npy")):
        rows = np.load(os.path.join(folder, name), allow_pickle=False)
        if rows.dtype != dtype:
            raise FormatError(f"{os.path.join(folder, name)}: not what a pass over ranges writes; start over (--fresh)")
        yield rows


def add_equal(folder: str, decisions: DecisionFiles) -> None:
    """Add all equal texts that workers reported."""
    for rows in read_results(folder, EQUAL):
        decisions.add(rows["number"], rows["kept"], np.ones(len(rows)), rows["size"])


def add_edges(folder: str, linked: Linked) -> None:
    """Add all shared bands that workers reported.

    They come band after band and range after range, as from a single process.
    """
    for rows in read_results(folder, EDGE):
        n_heavy, heaviest = rows[0]
        a, b = (np.ascontiguousarray(rows[name][1:]) for name in ("a", "b"))
        if len(a) and int(max(a.max(), b.max())) >= linked.n_documents:
            raise FormatError(f"{folder}: a link names no document; start over with fresh (--fresh)")
        linked.add(a, b, int(n_heavy), int(heaviest))
