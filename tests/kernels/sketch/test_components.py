"""link and roots against a twin that spreads labels until nothing changes; broken parents are refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.errors import UsageError
from tamis.kernels.sketch.components import link, new_parents, roots
from tests.reference import sketch_twin as twin
from tests.support.limits import examples


def u32(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.uint32)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29)), max_size=60), st.integers(0, 60))
def test_components_equal_the_twin(edges: list[tuple[int, int]], cut: int) -> None:
    parents = new_parents(30)
    for some in (edges[:cut], edges[cut:]):
        link(parents, u32(*(a for a, _ in some)), u32(*(b for _, b in some)))
    assert (parents <= np.arange(30)).all()
    roots(parents)
    assert parents.tolist() == twin.components(30, edges)


def test_the_order_of_edges_does_not_matter() -> None:
    rng = np.random.default_rng(1)
    edges = rng.integers(0, 50_000, (40_000, 2)).astype(np.uint32)
    results = []
    for order in (np.arange(40_000), rng.permutation(40_000)):
        parents = new_parents(50_000)
        link(parents, edges[order, 0], edges[order, 1])
        roots(parents)
        results.append(parents)
    assert (results[0] == results[1]).all()
    assert (results[0][edges[:, 0]] == results[0][edges[:, 1]]).all()


def test_a_long_chain_has_one_root() -> None:
    n = 200_000
    chain = np.arange(n, dtype=np.uint32)
    for a, b in ((chain[:-1], chain[1:]), (chain[1:][::-1], chain[:-1][::-1])):
        parents = new_parents(n)
        link(parents, a, b)
        roots(parents)
        assert not parents.any()


def test_no_ids_and_no_edges() -> None:
    parents = new_parents(0)
    link(parents, u32(), u32())
    roots(parents)
    assert parents.size == 0


def test_ids_outside_are_refused() -> None:
    parents = new_parents(3)
    with pytest.raises(ValueError, match="edge 1 joins 1 and 3 among 3 ids"):
        link(parents, u32(0, 1), u32(2, 3))


def test_broken_parents_are_refused() -> None:
    """As if read from a damaged file: a cycle, and a parent outside."""
    for broken in (u32(1, 0), u32(0, 4_000_000_000)):
        with pytest.raises(ValueError, match="edge 0"):
            link(broken.copy(), u32(1), u32(1))
        with pytest.raises(ValueError, match=r"the parent of [01] is"):
            roots(broken.copy())


def test_wrong_arrays_are_refused() -> None:
    with pytest.raises(UsageError, match="link: expected uint32 arrays, got int64, uint32 and uint32"):
        link(np.arange(3), u32(0), u32(1))
    with pytest.raises(UsageError, match="got 2 and 1"):
        link(new_parents(3), u32(0, 1), u32(1))
    with pytest.raises(UsageError, match="roots: expected a uint32 array, got int64"):
        roots(np.arange(3))
    with pytest.raises(UsageError, match="at most 4294967296 documents"):
        new_parents(2**32 + 1)
