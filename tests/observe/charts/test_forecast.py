"""Time to the limit: told where memory clearly rises, and only there."""

from __future__ import annotations

import random

from tamis.observe.charts.memory import seconds_to_limit


def test_a_steady_rise() -> None:
    assert seconds_to_limit([(float(i), 1000.0 + 10 * i) for i in range(60)], 2590.0) == 100.0


def test_noise_does_not_hide_a_rise() -> None:
    rng = random.Random(3)
    points = [(float(i), 1000.0 + 10 * i + rng.uniform(-60, 60)) for i in range(100)]
    found = seconds_to_limit(points, 4000.0)
    assert found is not None
    assert 150 < found < 250


def test_nothing_where_there_is_no_trend() -> None:
    rng = random.Random(4)
    assert seconds_to_limit([(float(i), 1000.0 + rng.uniform(-100, 100)) for i in range(100)], 4000.0) is None
    assert seconds_to_limit([(float(i), 1000.0 - i) for i in range(100)], 4000.0) is None
    assert seconds_to_limit([(float(i), 1000.0 + 0.01 * i) for i in range(100)], 4000.0) is None


def test_nothing_without_points_budget_or_room() -> None:
    rising = [(float(i), float(i)) for i in range(50)]
    assert seconds_to_limit([], 100.0) is None
    assert seconds_to_limit(rising, 0.0) is None
    assert seconds_to_limit(rising[:5], 100.0) is None
    assert seconds_to_limit(rising, 49.0) is None
    assert seconds_to_limit([(1.0, float(i)) for i in range(50)], 100.0) is None


def test_only_the_last_minutes_count() -> None:
    points = [(float(i), 500.0 - i if i < 200 else 300.0) for i in range(400)]
    assert seconds_to_limit(points, 1000.0) is None
