"""Linking bands: parents in memory and edges in a file give the same components, in one pass or several."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tamis.dedup.fuzzy.bands import Linked, component_facts
from tamis.dedup.records import parts_of


class Keys:
    """Records that hold keys alone."""

    def __init__(self, bands: dict[int, list[int]]) -> None:
        self.bands = {k: np.array(v, np.uint64) for k, v in bands.items()}

    def __len__(self) -> int:
        return len(next(iter(self.bands.values())))

    def keys(self, k: int, part: tuple[int, int]) -> tuple[Any, Any]:
        number = np.flatnonzero([part[0] <= int(key) < part[1] for key in self.bands[k]])
        return self.bands[k][number], number.astype(np.uint32)


BANDS = {1: [7, 7, 9, 9, 1 << 63, 5, 6, 1 << 63], 2: [1, 2, 2, 3, 4, 5, 6, 7]}
NOTHING: list[Any] = []


def clusters(
    folder: Path, room_bytes: int, passes: list[list[int]], equal: list[Any] = NOTHING, threads: int = 1
) -> list[tuple[int, int]]:
    folder.mkdir()
    for bands in passes:
        linked = Linked(str(folder), 8, room_bytes)
        linked.begin()
        linked.add_bands(Keys(BANDS), bands, equal, None, threads)  # type: ignore[arg-type]
        linked.save()
    linked = Linked(str(folder), 8, room_bytes)
    linked.begin()
    return [(int(p >> np.uint64(32)), int(p) & 0xFFFFFFFF) for p in linked.clusters()]


@pytest.mark.parametrize("room_bytes", [10_000, 70])  # 70: the parents of 8 documents are too large, edges go to a file
@pytest.mark.parametrize("passes", [[[1, 2]], [[1], [2]]])
@pytest.mark.parametrize("threads", [1, 3])
def test_components(tmp_path: Path, room_bytes: int, passes: list[list[int]], threads: int) -> None:
    assert Linked(str(tmp_path), 8, room_bytes).spills == (room_bytes == 70)
    found = clusters(tmp_path / "work", room_bytes, passes, threads=threads)
    assert found == [(0, 0), (0, 1), (0, 2), (0, 3), (4, 4), (4, 7)]


def test_equal_documents_are_not_linked(tmp_path: Path) -> None:
    found = clusters(tmp_path / "work", 10_000, [[1, 2]], [np.array([1, 7], np.uint32)])
    assert found == [(2, 2), (2, 3)]


@pytest.mark.parametrize("room_bytes", [10_000, 70])
def test_a_pass_that_did_not_end_leaves_nothing(tmp_path: Path, room_bytes: int) -> None:
    linked = Linked(str(tmp_path), 8, room_bytes)
    linked.begin()
    linked.add_bands(Keys(BANDS), [1], [], None)  # type: ignore[arg-type]
    linked.save()
    lost = Linked(str(tmp_path), 8, room_bytes)
    lost.begin()
    lost.add_bands(Keys(BANDS), [2], [], None)  # type: ignore[arg-type]
    again = Linked(str(tmp_path), 8, room_bytes)
    again.begin()
    assert again.n_edges == 3
    assert [int(p) & 0xFFFFFFFF for p in again.clusters()] == [0, 1, 2, 3, 4, 7]


def test_facts_of_components() -> None:
    pairs = np.array([0 << 32 | 0, 0 << 32 | 1, 4 << 32 | 4, 4 << 32 | 5, 4 << 32 | 6], np.uint64)
    assert component_facts(pairs) == {
        "n_components": 2,
        "largest_component": 3,
        "component_sizes": {"2": 1, "3-4": 1},
    }
    assert component_facts(np.empty(0, np.uint64))["n_components"] == 0


def test_parts_cover_all_keys() -> None:
    assert parts_of(100, 1000) == [(0, 1 << 64)]
    parts = parts_of(1000, 300)
    assert len(parts) == 4
    assert parts[0][0] == 0
    assert parts[-1][1] == 1 << 64
    assert all(a[1] == b[0] for a, b in itertools.pairwise(parts))
