"""Trend tests of short series: Theil-Sen slope and Mann-Kendall test, corrected for autocorrelation.

Pure.

Covers the statistics only; what a rise of a worker's floor means is decided in leaks.py. Plain Python: it runs in the
supervisor, which imports no numerical library. Quadratic in the points, so longer series are thinned
first (`thin`): a fit of 50 points takes about 0.5 ms.

Slope: Sen (1968), the median of all pairwise slopes; its bounds are order statistics of the same slopes. Test: Mann and
Kendall's count of rising pairs. Memory floors remember (a cache that filled stays), which makes neighbouring points
alike and the plain test "find" trends in noise; Hamed and Rao (1998) widen its variance by the autocorrelation of the
detrended ranks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

_Z_BOUND = 1.96  # each bound of the slope fails in 2.5 % of cases


class Fit(NamedTuple):
    """A straight line through a series: change per step with its bounds, and how easily chance gives such a rise."""

    slope: float
    low: float
    high: float
    p: float  # one-sided: the chance of a rise this consistent without any trend
    spread: float  # of the points around the line, as a standard deviation (from the median deviation)
    n_points: int


def thin(values: Sequence[float], max_points: int) -> tuple[list[float], int]:
    """Return the smallest value of each run of neighbours, at most `max_points` of them, and the run length.

    The smallest, not the median: what disturbs a floor (a cache, an arena kept for a while) is above it.
    """
    step = -(-len(values) // max_points)
    n = len(values) // step
    first = len(values) - n * step  # an incomplete run is left out at the old end
    return [min(values[first + i * step : first + (i + 1) * step]) for i in range(n)], step


def fit(values: Sequence[float], step: float = 1.0) -> Fit:
    """Fit a line through at least three values that are `step` apart."""
    n = len(values)
    slopes = [(values[j] - y) / (j - i) for i, y in enumerate(values) for j in range(i + 1, n)]
    rising = sum(1 for s in slopes if s > 0) - sum(1 for s in slopes if s < 0)
    slopes.sort()
    slope = median(slopes)
    residuals = [y - slope * i for i, y in enumerate(values)]
    variance = _variance(values) * _inflation(_ranks(residuals))
    reach = _Z_BOUND * math.sqrt(variance)
    low = slopes[max(0, math.floor((len(slopes) - reach) / 2))]
    high = slopes[min(len(slopes) - 1, math.ceil((len(slopes) + reach) / 2))]
    z = (rising - (1 if rising > 0 else -1 if rising < 0 else 0)) / math.sqrt(variance) if variance else 0.0
    centre = median(residuals)
    spread = 1.4826 * median(abs(r - centre) for r in residuals)
    return Fit(slope / step, low / step, high / step, 0.5 * math.erfc(z / math.sqrt(2)), spread, n)


def _variance(values: Sequence[float]) -> float:
    """Return the variance of the Mann-Kendall count for independent points, corrected for ties."""
    n = len(values)
    tied = sum(t * (t - 1) * (2 * t + 5) for t in Counter(values).values() if t > 1)
    return (n * (n - 1) * (2 * n + 5) - tied) / 18


def _ranks(values: Sequence[float]) -> list[float]:
    """Return ranks, 1 for the smallest; equal values share the mean of their ranks."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    position = 0
    while position < len(order):
        end = position
        while end + 1 < len(order) and values[order[end + 1]] == values[order[position]]:
            end += 1
        for k in range(position, end + 1):
            ranks[order[k]] = (position + end) / 2 + 1
        position = end + 1
    return ranks


def _inflation(ranks: Sequence[float]) -> float:
    """Return how much autocorrelation inflates the variance (Hamed and Rao's n/n*); never below 1.

    Only significant positive lags count, up to a quarter of the series: higher ones rest on too few pairs, and
    negative ones (a sawtooth) would make the test bolder than without any correction.
    """
    n = len(ranks)
    mean = sum(ranks) / n
    centred = [r - mean for r in ranks]
    power = sum(c * c for c in centred)
    if not power:
        return 1.0
    total = 0.0
    for lag in range(1, n // 4 + 1):
        rho = sum(a * b for a, b in zip(centred, centred[lag:], strict=False)) / power
        if rho > _Z_BOUND / math.sqrt(n):
            total += (n - lag) * (n - lag - 1) * (n - lag - 2) * rho
    return 1.0 + 2.0 * total / (n * (n - 1) * (n - 2))
