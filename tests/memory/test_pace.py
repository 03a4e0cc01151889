"""How often memory is looked at: what moves or is near its budget often, what stands still seldom."""

from __future__ import annotations

import pytest

from tamis.memory import pace
from tamis.memory.pace import (
    EXACT_S,
    FAST_SAMPLE_S,
    IDLE_S,
    RESTLESS_S,
    SAMPLE_S,
    SPACIOUS_IDLE_S,
    SPACIOUS_S,
    STILL_S,
    Pace,
    has_moved,
)

MB = 1_000_000


@pytest.fixture(autouse=True)
def slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all processes together take at most 4 GB in a second."""
    monkeypatch.setattr(pace, "_GROWTH_BYTES_S", 4e9)


def rested(budget_bytes: int | None, used_bytes: int, n: int = 20) -> Pace:
    """Return the pace after looks that have all found the same."""
    found = Pace()
    found.budget_bytes = budget_bytes
    for _ in range(n):
        found.note(used_bytes)
    return found


def test_pauses_grow_while_nothing_changes() -> None:
    found = Pace()
    found.budget_bytes = 8000 * MB
    pauses = []
    for _ in range(12):
        found.note(300 * MB)
        pauses.append(found.pause_s)
    assert pauses[0] == SAMPLE_S
    assert pauses == sorted(pauses)
    assert pauses[-1] == STILL_S


def test_a_move_makes_them_short_again() -> None:
    found = rested(8000 * MB, 300 * MB)
    found.note(302 * MB)
    assert found.pause_s == STILL_S  # less than 1 %
    found.note(304 * MB)  # ... and 1 % of what it was when it last moved
    assert found.pause_s == SAMPLE_S


def test_a_slow_rise_is_a_move_too() -> None:
    found = rested(8000 * MB, 300 * MB)
    pauses = []
    for n in range(8):
        found.note(300 * MB + n * MB)
        pauses.append(found.pause_s)
    assert SAMPLE_S in pauses


@pytest.mark.parametrize(
    ("budget", "used", "pause"),
    [
        (8000 * MB, 300 * MB, STILL_S),
        (700 * MB, 300 * MB, 0.1),  # 400 MB are left, and 4 GB/s could come
        (350 * MB, 300 * MB, SAMPLE_S),
        (250 * MB, 300 * MB, SAMPLE_S),
        (None, 300 * MB, SAMPLE_S),
    ],
)
def test_a_pause_is_no_longer_than_what_is_left_lasts(budget: int | None, used: int, pause: float) -> None:
    assert rested(budget, used).pause_s == pytest.approx(pause)


def test_processes_that_nothing_bounds_are_looked_at_all_the_time() -> None:
    found = rested(8000 * MB, 300 * MB)
    found.is_hurried = True
    assert (found.pause_s, found.exact_s) == (FAST_SAMPLE_S, RESTLESS_S)


def test_what_is_about_to_begin_ends_a_long_pause_only() -> None:
    found = rested(8000 * MB, 300 * MB)
    assert found.expect_change()
    assert found.pause_s == SAMPLE_S
    assert not found.expect_change()
    found.is_hurried = True
    assert not found.expect_change()


@pytest.mark.parametrize(
    ("budget", "used", "exact", "idle"),
    [
        (1000 * MB, 700 * MB, SPACIOUS_S, SPACIOUS_IDLE_S),
        (1000 * MB, 800 * MB, EXACT_S, IDLE_S),
        (None, 0, EXACT_S, IDLE_S),
    ],
)
def test_pss_is_measured_more_often_where_little_is_left(
    budget: int | None, used: int, exact: float, idle: float
) -> None:
    found = rested(budget, used)
    assert (found.exact_s, found.idle_s) == (exact, idle)


@pytest.mark.parametrize(
    ("before", "now", "moved"), [(100, 101, False), (100, 102, True), (100, 98, True), (0, 1, True), (0, 0, False)]
)
def test_one_percent_is_a_move(before: int, now: int, moved: bool) -> None:
    assert has_moved(before, now) is moved
