"""A line through a few points, with an idea of it beforehand."""

from __future__ import annotations

import pytest

from tamis.forecast.fitting import LinearModel, Point, fit

PRIOR = LinearModel(1.0, 2.0)


def test_many_points_outweigh_what_was_thought() -> None:
    line = fit([Point(x, 5 + 3 * x) for x in range(1, 40)], PRIOR, 0.001, 0.001)
    assert (line.start, line.slope) == (pytest.approx(5, rel=0.05), pytest.approx(3, rel=0.05))
    assert line.at(10) == pytest.approx(35, rel=0.01)


def test_one_point_is_met_by_what_is_least_certain() -> None:
    steep = fit([Point(10, 41)], PRIOR, 100, 0.0001)  # the start is sure, so the slope gives way
    assert (steep.start, steep.slope) == (pytest.approx(1, rel=0.01), pytest.approx(4, rel=0.01))
    high = fit([Point(10, 41)], PRIOR, 0.000001, 100)
    assert (high.start, high.slope) == (pytest.approx(21, rel=0.01), pytest.approx(2, rel=0.01))


def test_nothing_falls_below_zero() -> None:
    falling = fit([Point(1, 100), Point(2, 50), Point(4, 10)], PRIOR, 0.001, 0.001)
    assert falling.slope == 0.0
    through = fit([Point(10, 1), Point(100, 100), Point(200, 300)], PRIOR, 0.001, 0.001)
    assert through.start == 0.0


def test_points_without_height_or_weight_say_nothing() -> None:
    assert fit([Point(5, 0.0), Point(5, 7.0, 0.0)], PRIOR, 1, 1) == pytest.approx(PRIOR)


def test_sizes_in_bytes_are_no_trouble() -> None:
    line = fit([Point(x * 1e9, 1.5 + 4 * x) for x in (1, 5, 30, 1000)], LinearModel(1.4, 1e-8), 0.1, 0.1)
    assert line.slope == pytest.approx(4e-9, rel=0.05)
