"""How many workers each segment gets."""

from __future__ import annotations

from tamis.engine.supervisor.balance import share_workers


def test_shares_follow_the_measured_work() -> None:
    assert share_workers(8, [1.0, 3.0], [None, None]) == [2, 6]
    assert share_workers(9, [1.0, 1.0, 1.0], [None] * 3) == [3, 3, 3]
    assert share_workers(4, [0.0, 1.0], [None, None]) == [1, 3]


def test_every_segment_gets_one_even_beyond_the_slots() -> None:
    assert share_workers(1, [1.0, 1.0, 1.0], [None] * 3) == [1, 1, 1]


def test_fixed_numbers_are_kept() -> None:
    assert share_workers(4, [5.0, 1.0], [None, 3]) == [1, 3]
    assert share_workers(8, [1.0, 1.0], [2, 2]) == [2, 2]


def test_before_anything_is_measured_shares_are_equal() -> None:
    assert share_workers(5, [0.0, 0.0], [None, None]) == [3, 2]


def test_workers_that_ask_for_several_cpus_are_fewer() -> None:
    assert share_workers(8, [1.0], [None], cpus=[2.0]) == [4]
