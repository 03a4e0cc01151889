"""sort_pairs against sorted(), with keys that are no hashes too; star edges against the twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.errors import UsageError
from tamis.kernels.sketch.sorting import CROWDED, sort_pairs, star_edges
from tests.reference import sketch_twin as twin
from tests.support.limits import examples

FEW_KEYS = st.lists(st.tuples(st.sampled_from([0, 1, 255, 2**33, 2**63, 2**64 - 1]), st.integers(0, 2**32 - 1)))
ANY_KEYS = st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 300)), max_size=200)


def arrays(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([key for key, _ in pairs], np.uint64), np.array([number for _, number in pairs], np.uint32)


def edges_of(keys: np.ndarray, ids: np.ndarray) -> list[tuple[int, int]]:
    a, b = np.empty(keys.size, np.uint32), np.empty(keys.size, np.uint32)
    n = star_edges(keys, ids, a, b)
    return list(zip(a[:n].tolist(), b[:n].tolist(), strict=True))


@settings(max_examples=examples(200), deadline=None)
@given(st.one_of(FEW_KEYS, ANY_KEYS))
def test_pairs_and_edges_equal_the_twin(pairs: list[tuple[int, int]]) -> None:
    keys, ids = arrays(pairs)
    expected = twin.sort_pairs(keys.tolist(), ids.tolist())
    sort_pairs(keys, ids)
    assert (keys.tolist(), ids.tolist()) == expected
    assert edges_of(keys, ids) == twin.star_edges(*expected)


def check_sorted(keys: np.ndarray, ids: np.ndarray) -> None:
    order = np.lexsort((ids, keys))
    expected = keys[order], ids[order]
    sort_pairs(keys, ids)
    assert (keys == expected[0]).all()
    assert (ids == expected[1]).all()


@pytest.mark.parametrize("n", [CROWDED, CROWDED + 1, 16_384, 16_385, 300_000])
def test_many_hashes(n: int) -> None:
    rng = np.random.default_rng(n)
    check_sorted(rng.integers(0, 2**64, n, np.uint64), rng.integers(0, 2**32, n).astype(np.uint32))
    check_sorted(rng.integers(0, 2**64, n, np.uint64), np.arange(n, dtype=np.uint32))


@pytest.mark.parametrize(
    "shape",
    ["one key", "small numbers", "one far away", "few keys", "same upper half", "same lower half", "two clusters"],
)
def test_keys_that_are_no_hashes(shape: str) -> None:
    rng = np.random.default_rng(7)
    n = 100_000
    keys = {
        "one key": np.full(n, 2**64 - 5, np.uint64),
        "small numbers": rng.integers(0, 1000, n, np.uint64),
        "one far away": np.append(rng.integers(0, 1000, n - 1, np.uint64), np.uint64(2**64 - 1)),
        "few keys": rng.integers(0, 2**64, 30, np.uint64)[rng.integers(0, 30, n)],
        "same upper half": rng.integers(0, 2**32, n, np.uint64) + np.uint64(9 << 32),
        "same lower half": rng.integers(0, 2**32, n, np.uint64) << np.uint64(32),
        "two clusters": rng.integers(0, 2**20, n, np.uint64) + (rng.integers(0, 2, n, np.uint64) << np.uint64(63)),
    }[shape]
    check_sorted(keys.copy(), rng.permutation(n).astype(np.uint32))
    check_sorted(keys[::-1].copy(), np.arange(n, dtype=np.uint32))


def test_edges_written_out() -> None:
    keys, ids = arrays([(5, 1), (5, 4), (5, 9), (6, 2), (7, 3), (7, 3), (7, 8), (9, 0), (9, 0)])
    assert edges_of(keys, ids) == [(1, 4), (1, 9), (3, 8)]


def test_nothing_to_sort() -> None:
    keys, ids = arrays([])
    sort_pairs(keys, ids)
    assert edges_of(keys, ids) == []


def test_read_only_pairs_have_edges() -> None:
    keys, ids = arrays([(5, 1), (5, 4)])
    keys.flags.writeable = ids.flags.writeable = False
    assert edges_of(keys, ids) == [(1, 4)]


def test_wrong_arrays_are_refused() -> None:
    keys, ids = arrays([(1, 1), (1, 2), (1, 3)])
    for bad in (ids[:2], ids.astype(np.int64), np.repeat(ids, 2)[::2]):
        with pytest.raises(UsageError, match=r"^sort_pairs: expected"):
            sort_pairs(keys, bad)
    room = np.empty(1, np.uint32)
    with pytest.raises(UsageError, match="2 edges do not fit outputs of 1"):
        star_edges(keys, ids, room, room.copy())
    with pytest.raises(UsageError, match="outputs of equal length, got 1 and 3"):
        star_edges(keys, ids, room, ids)
