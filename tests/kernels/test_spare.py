"""Buffers that are used again, and those that somebody still looks at."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tamis.kernels import spare

MB = 1 << 20


@pytest.fixture(autouse=True)
def active(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(spare, "_active", True)
    yield
    spare.drop()


def address(array: np.ndarray) -> int:  # type: ignore[type-arg]
    return int(array.__array_interface__["data"][0])


def test_the_next_one_takes_the_same_place() -> None:
    first = spare.take("block", 4 * MB)
    first[:] = 7
    place = address(first)
    del first
    second = spare.take("block", 4 * MB)
    assert address(second) == place
    assert (len(second), int(second.min())) == (4 * MB, 7)
    assert spare.held_bytes() == 0
    del second
    assert 4 * MB <= spare.held_bytes() < 5 * MB


@pytest.mark.parametrize("how", ["slice", "view", "memory", "arrow"])
def test_what_somebody_keeps_is_left_alone(how: str) -> None:
    first = spare.take("block", 4 * MB)
    first[:] = 7
    kept: Any = first[1000:2000]
    if how == "view":
        kept = first.view(np.uint64)[5:]
    elif how == "memory":
        kept = np.frombuffer(memoryview(first)[8:80], np.uint8)  # type: ignore[arg-type]
    elif how == "arrow":
        kept = pa.py_buffer(first).slice(16, 64)
    del first
    assert spare.held_bytes() == 0
    second = spare.take("block", 4 * MB)
    second[:] = 9
    assert set(np.frombuffer(kept, np.uint8).tolist()) == {7}
    del kept
    assert spare.held_bytes() > 4 * MB


def test_who_counts_references_differently_is_not_misled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Newer Pythons do not count every reference: what the count says decides nothing."""
    monkeypatch.setattr(sys, "getrefcount", lambda _: 3)
    first = spare.take("block", 4 * MB)
    second = spare.take("block", 4 * MB)
    assert not np.shares_memory(first, second)


def test_arrays_that_died_in_a_cycle_come_back_with_the_collector() -> None:
    cycle: list[Any] = [spare.take("block", 4 * MB)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert spare.held_bytes() > 4 * MB


def test_each_purpose_has_its_own() -> None:
    block, text = spare.take("block", 2 * MB), spare.take("text", 2 * MB)
    assert not np.shares_memory(block, text)


def test_one_that_is_too_small_or_much_too_large_goes() -> None:
    spare.take("block", 4 * MB)
    assert len(spare.take("block", 8 * MB)) == 8 * MB
    assert spare.held_bytes() < 9 * MB
    assert len(spare.take("block", 2 * MB)) == 2 * MB
    assert spare.held_bytes() < 3 * MB
    spare.drop()
    assert spare.held_bytes() == 0


def test_small_ones_and_other_processes_keep_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert spare.take("block", 1000).base is None
    monkeypatch.setattr(spare, "_active", False)
    assert spare.take("block", 4 * MB).base is None
    assert spare.held_bytes() == 0
