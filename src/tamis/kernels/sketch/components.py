"""Connected components by union-find over 32-bit parents: 4 bytes per id, whatever the number of edges.

A root is its own parent, every other parent is smaller than its child: the larger root goes under the smaller one. So
the result does not depend on the order of the edges, and the root of a component is its smallest id. Paths are halved
while they are walked.
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tamis.errors import UsageError
from tamis.kernels.language import types
from tamis.kernels.language.intrinsics import at, pointer, put
from tamis.kernels.language.jit import helper, kernel
from tamis.kernels.language.types import U32_IN, U32_OUT

_BROKEN = np.int64(-1)


@helper
def _root(parents, node):
    """_BROKEN where a parent is larger than its child: that would be no tree, and perhaps outside."""
    while True:
        parent = np.int64(at(parents, node))
        if parent >= node:
            return node if parent == node else _BROKEN
        above = np.int64(at(parents, parent))
        if above > parent:
            return _BROKEN
        put(parents, node, np.uint32(above))
        node = above


@kernel(types.int64(U32_OUT, U32_IN, U32_IN))
def _link(parents_out, a, b):
    """Link edges; return -1, or the first edge that cannot be linked."""
    parents = pointer(parents_out)
    n = parents_out.size
    for k in range(a.size):
        x = np.int64(at(a, k))
        y = np.int64(at(b, k))
        if x >= n or y >= n:
            return k
        x = _root(parents, x)
        y = _root(parents, y)
        if x < 0 or y < 0:
            return k
        if x < y:
            put(parents, y, np.uint32(x))
        elif y < x:
            put(parents, x, np.uint32(y))
    return -1


@kernel(types.int64(U32_OUT))
def _roots(parents):
    """Point every id to its root; return -1, or the first id whose parent is larger.

    The parent of each is a root by the time it is looked at.
    """
    for node in range(parents.size):
        parent = np.int64(at(parents, node))
        if parent > node:
            return node
        put(parents, node, at(parents, parent))
    return -1


def new_parents(n: int) -> NDArray[np.uint32]:
    """Return n components of one id each."""
    if not 0 <= n <= 1 << 32:
        raise UsageError(f"components: ids have 32 bits, so at most {1 << 32} documents; got {n}")
    return np.arange(n, dtype=np.uint32)


def link(parents: NDArray[np.uint32], a: NDArray[np.uint32], b: NDArray[np.uint32]) -> None:
    """Join the components of a[k] and b[k], for all k, in place."""
    if not parents.dtype == a.dtype == b.dtype == np.uint32:
        raise UsageError(f"link: expected uint32 arrays, got {parents.dtype}, {a.dtype} and {b.dtype}")
    if a.size != b.size:
        raise UsageError(f"link: expected as many left as right ends of edges, got {a.size} and {b.size}")
    bad = int(_link(parents, np.ascontiguousarray(a), np.ascontiguousarray(b)))
    if bad >= 0:
        raise ValueError(
            f"link: edge {bad} joins {a[bad]} and {b[bad]} among {parents.size} ids; "
            "expected ids below that and parents no larger than their children"
        )


def roots(parents: NDArray[np.uint32]) -> None:
    """Replace every entry by the smallest id of its component, in place."""
    if parents.dtype != np.uint32:
        raise UsageError(f"roots: expected a uint32 array, got {parents.dtype}")
    bad = int(_roots(parents))
    if bad >= 0:
        raise ValueError(f"roots: the parent of {bad} is {parents[bad]}; expected none larger than its child")
