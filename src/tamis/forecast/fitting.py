"""A line through a few points, with an idea of it beforehand. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Line(NamedTuple):
    """y = start + slope * x, neither below zero."""

    start: float
    slope: float

    def at(self, x: float) -> float:
        return self.start + self.slope * x


class Point(NamedTuple):
    x: float
    y: float
    weight: float = 1.0


def fit(points: Sequence[Point], prior: Line, start_worth: float, slope_worth: float) -> Line:
    """The line that misses the points by the least share of their heights. What is known beforehand counts as so
    many points (of the height that it says itself).

    >>> line = fit([Point(0, 2), Point(10, 22)], Line(1.0, 1.0), 0.001, 0.001)
    >>> round(line.start, 1), round(line.slope, 1)
    (2.0, 2.0)
    >>> fit([], Line(3.0, 4.0), 1, 1)
    Line(start=3.0, slope=4.0)
    """
    some = [p for p in points if p.y > 0 and p.weight > 0]
    start_scale, slope_scale = max(prior.start, 1e-12), max(prior.slope, 1e-30)
    aa, bb, ab = start_worth / start_scale**2, slope_worth / slope_scale**2, 0.0
    ay, by = start_worth * prior.start / start_scale**2, slope_worth * prior.slope / slope_scale**2
    for x, y, weight in some:
        w = weight / (y * y)
        aa, bb, ab = aa + w, bb + w * x * x, ab + w * x
        ay, by = ay + w * y, by + w * x * y
    determinant = aa * bb - ab * ab
    if determinant <= 0:
        return prior
    start, slope = (ay * bb - by * ab) / determinant, (by * aa - ay * ab) / determinant
    if start < 0:
        start, slope = 0.0, max(0.0, by / bb)
    elif slope < 0:
        start, slope = max(0.0, ay / aa), 0.0
    return Line(start, slope)
