"""Estimates from few runs and a prior: a line through points, and the range of the next ratio. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

_Z = 1.6448536269514722  # one-sided 95 %


class LinearModel(NamedTuple):
    """y = start + slope * x, neither below zero."""

    start: float
    slope: float

    def at(self, x: float) -> float:
        return self.start + self.slope * x


class Point(NamedTuple):
    x: float
    y: float
    weight: float = 1.0


def fit(points: Sequence[Point], prior: LinearModel, start_worth: float, slope_worth: float) -> LinearModel:
    """Fit the line that misses the points by the least share of their heights.

    The prior counts as `start_worth` and `slope_worth` points (of the height that it predicts itself).

    >>> line = fit([Point(0, 2), Point(10, 22)], LinearModel(1.0, 1.0), 0.001, 0.001)
    >>> round(line.start, 1), round(line.slope, 1)
    (2.0, 2.0)
    >>> fit([], LinearModel(3.0, 4.0), 1, 1)
    LinearModel(start=3.0, slope=4.0)
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
    return LinearModel(start, slope)


class Prior(NamedTuple):
    """Assumptions before the first run. Spreads are of the logarithm.

    `noise`: from one run to the next under the same conditions. `runs`: how many runs the starting model is worth; the
    wider the prior has to be, the fewer. Chosen so that the first interval spans a factor of 1.9 for the peak and 6 for
    the time.
    """

    noise: float
    runs: float
    degrees: float = 4.0


PEAK = Prior(noise=0.06, runs=0.04)
SECONDS = Prior(noise=0.25, runs=0.1)
SCRATCH = Prior(noise=0.25, runs=0.1)
OUTPUT = Prior(noise=0.1, runs=0.1)


def spread(ratios: Sequence[float], weights: Sequence[float], prior: Prior, extra: float = 0.0) -> tuple[float, float]:
    """Centre and half width of the interval for the next logarithm of a ratio. `extra`: a spread that no run can show.

    >>> centre, half = spread([], [], PEAK)
    >>> round(centre, 2), round(half, 2)
    (0.0, 0.65)
    >>> centre, half = spread([0.3, 0.3], [1, 1], PEAK)
    >>> round(centre, 2), round(half, 2)
    (0.29, 0.13)
    """
    n = sum(weights)
    mean = sum(w * r for w, r in zip(weights, ratios, strict=True)) / n if n else 0.0
    worth, degrees = prior.runs + n, prior.degrees + n
    squares = sum(w * (r - mean) ** 2 for w, r in zip(weights, ratios, strict=True))
    off = prior.runs * n / worth * mean * mean
    variance = (prior.degrees * prior.noise**2 + squares + off) / degrees
    scale = math.sqrt(variance * (1 + 1 / worth) + extra * extra)
    return n * mean / worth, student(degrees) * scale


def student(degrees: float) -> float:
    """Return the one-sided 95 % point of Student's t-distribution with at least 4 degrees of freedom.

    Computed by an expansion around the normal distribution's.

    >>> [round(student(n), 2) for n in (4, 6, 10, 30, 1000)]
    [2.13, 1.94, 1.81, 1.7, 1.65]
    """
    z = _Z
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / degrees + second / degrees**2 + third / degrees**3
