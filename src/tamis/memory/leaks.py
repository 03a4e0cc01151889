"""Leak detection: the trend of what a worker still holds after release(), partition after partition. Pure.

A rising floor eats the cap from below until every partition fails, so the leak is named and the worker replaced before
that. Floors move for many reasons that are not leaks: allocators scatter and remember, caches fill (steps), are emptied
(saws) and warm up (growth that ends by itself). A leak is therefore claimed only when all of this holds:

- the series rises: lower bound of the Theil-Sen slope above 0, autocorrelation-corrected Mann-Kendall p < 0.001;
- the rise matters: 4 MB or more, and twice the scatter around the line;
- a second window confirms it: the newer half rises too, and is not clearly flatter than the older, as of a warm-up;
- it is no matter of a few steps: the largest ones are taken out before anything is fitted;
- it continues: the newest part rises as well, so that a cache which has just become full is left alone;
- enough was seen: 150 partitions, and three of the last four checks agree. 60 will do for a fast and even rise that
  workers were replaced for already: what fills their memory is in the way, whether it would have ended or not.

Simulated with every kind of disturbance (tests/memory/leak_series.py), 64 KB per partition are found within 200
partitions in 99 % of workers, and fewer than 1 % of those without a leak are accused. While a cache fills as evenly as
a leak it looks the same: one that takes longer than about 120 partitions is accused, and cleared when its floor
has stayed level (`is_level`). Until a leak is proven (`is_proven`), a worker is replaced only when its next partition
would not fit (supervisor/worker_health.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from tamis.memory.trend import fit, thin

N_IGNORED = 5  # imports, caches and arenas fill during the first partitions
MIN_POINTS = 30
MAX_POINTS = 200
MIN_GROWTH_BYTES = 4_000_000
ALLOWANCE_SHARE = 0.1  # of the cap: below it a worker loses less by staying than by being replaced
_MIN_HALF_BYTES = 2_500_000
_LEAK_POINTS, _NEWER_POINTS, _LEVEL_POINTS = 150, 100, 60
_FAST_POINTS, _FAST_HALF_BYTES = 60, 16_000_000
_MAX_P, _MAX_HALF_P = 0.001, 0.05
_STILL_RISING, _EVEN = 0.45, 0.75  # slope of the newer half, as a share of the older one's
_NEWEST_SHARE, _LEVEL_SHARE = 4, 0.15  # the newest quarter; a slope of less than this share of the leak's is none
_CHECK_EVERY = 3  # partitions: a check costs half a millisecond
_N_AGREEING, _N_CHECKS = 3, 4
_FITTED_POINTS = 40
_MAX_STEPS, _STEP_SPREADS, _MIN_STEP_BYTES = 5, 5.0, 500_000


class LeakVerdict(NamedTuple):
    """Judgement of the floors of one worker; `is_leak`: they show a leak."""

    slope_bytes: float = 0.0  # per partition
    low_bytes: float = 0.0  # the lower bound of it
    growth_bytes: float = 0.0  # over the points looked at
    p: float = 1.0
    n_points: int = 0
    rises: bool = False  # steadily, but perhaps not for long
    is_leak: bool = False


class FloorTrend:
    """The floors of one worker, and of those that take its place after it was replaced for what it had gathered."""

    def __init__(self) -> None:
        self._floors: deque[float] = deque(maxlen=MAX_POINTS)
        self._n_ignored = N_IGNORED
        self._offset_bytes: float | None = 0.0
        self._n_added = 0
        self._n_lives = 1
        self._n_life_points = 0  # of the worker that lives now
        self._verdict = LeakVerdict()
        self._checks: deque[bool] = deque(maxlen=_N_CHECKS)

    def add(self, floor_bytes: float) -> None:
        """Note the resident anonymous bytes after the release that follows a partition."""
        if self._n_ignored:
            self._n_ignored -= 1
            return
        if self._offset_bytes is None:  # a successor begins where its predecessor ended
            self._offset_bytes = self._floors[-1] - floor_bytes if self._floors else 0.0
        self._floors.append(floor_bytes + self._offset_bytes)
        self._n_added += 1
        self._n_life_points += 1
        if len(self._floors) >= MIN_POINTS and self._n_added % _CHECK_EVERY == 0:
            verdict = judge(self._floors, self._n_lives > 1)
            self._checks.append(verdict.is_leak)
            self._verdict = verdict._replace(is_leak=sum(self._checks) >= _N_AGREEING)

    def succeed(self) -> None:
        """Continue this series with a fresh process.

        Its own first partitions are ignored, and its level is joined to the old one. A leak that fills a cap in
        twenty partitions could not be distinguished from a warm-up within the life of one worker.
        """
        self._n_ignored = N_IGNORED
        self._offset_bytes = None
        self._n_lives += 1
        self._n_life_points = 0

    def is_level(self, slope_bytes: float) -> bool:
        """Return True if a rise of `slope_bytes` per partition is over.

        That is, if the last sixty partitions show nothing like it.
        """
        if len(self._floors) < _LEVEL_POINTS:
            return False
        points, step = thin(list(self._floors)[-_LEVEL_POINTS:], _FITTED_POINTS)
        return fit(points, step).slope < _LEVEL_SHARE * slope_bytes

    @property
    def verdict(self) -> LeakVerdict:
        """The current judgement, updated every third partition."""
        return self._verdict

    @property
    def is_proven(self) -> bool:
        """Return True if a single worker lived long enough to show a rise that does not end.

        Joined lives prove nothing: a cache that is emptied with every replaced worker gives the same series.
        """
        return self._verdict.is_leak and self._n_life_points >= _LEAK_POINTS

    @property
    def suspected(self) -> bool:
        """True if one of the last checks says leak: worth a closer look, which should be done when they agree."""
        return any(self._checks)


def partitions_until(n_bytes: float, slope_bytes: float) -> int:
    """Return how many partitions a leak of `slope_bytes` each needs to fill `n_bytes`."""
    return max(0, int(n_bytes / slope_bytes)) if slope_bytes > 0 else 0


def allowance(cap_bytes: int) -> int:
    """Return how far the floor of a leaking worker may rise before it is replaced.

    In partitions: N* = 0.1 cap / slope. At least MIN_GROWTH_BYTES.
    """
    return max(int(ALLOWANCE_SHARE * cap_bytes), MIN_GROWTH_BYTES)


def judge(floors: Sequence[float], was_replaced: bool = False) -> LeakVerdict:
    """Return the verdict on a series of at least 30 floors: on all of it, else on its newer part.

    In the newer part a warm-up is over. `was_replaced`: the series is that of several workers, each of which
    was replaced for what it had accumulated.
    """
    verdict = _judge(list(floors), len(floors), was_replaced)
    newer = len(floors) * 2 // 3
    if verdict.rises and not verdict.is_leak and newer >= _NEWER_POINTS:
        recent = _judge(list(floors)[-newer:], len(floors), was_replaced)
        return recent if recent.is_leak else verdict
    return verdict


def _judge(floors: list[float], n_seen: int, was_replaced: bool) -> LeakVerdict:
    n = len(floors)
    points, step = thin(floors, _FITTED_POINTS)
    level = without_steps(points)
    quarter = len(level) // 4
    # Cheap and decisive for most workers: without this rise nothing below can hold.
    if median(level[-quarter:]) - median(level[:quarter]) < MIN_GROWTH_BYTES / 2:
        return LeakVerdict(n_points=n)
    line = fit(level, step)
    growth = line.slope * (n - 1)
    if line.low <= 0 or line.p >= _MAX_P or growth < MIN_GROWTH_BYTES or growth < 2 * line.spread:
        return LeakVerdict(line.slope, line.low, growth, line.p, n)
    half = len(level) // 2
    first, second = fit(level[:-half], step), fit(level[-half:], step)
    smaller = min(first.slope, second.slope) * n / 2
    newest = fit(level[-(len(level) // _NEWEST_SHARE) :], step)
    long_enough = n_seen >= _LEAK_POINTS or (
        was_replaced and second.slope >= _EVEN * first.slope and n >= _FAST_POINTS and smaller >= _FAST_HALF_BYTES
    )
    is_leak = (
        long_enough
        and newest.slope >= _LEVEL_SHARE * line.slope
        and smaller >= _MIN_HALF_BYTES
        and max(first.p, second.p) < _MAX_HALF_P
        and second.slope >= _STILL_RISING * first.slope
    )
    return LeakVerdict(line.slope, line.low, growth, line.p, n, rises=True, is_leak=is_leak)


def without_steps(values: Sequence[float]) -> list[float]:
    """Return the series without its few largest upward steps, and without a downward step if it is the only one.

    A step is a change that is clearly larger than all others. If there are several downward steps they are
    kept: removing them would turn a sawtooth into a leak. One in ten partitions leaking ten times as much is
    not a matter of a few steps, and survives this.
    """
    moves = [b - a for a, b in pairwise(values)]
    centre = median(moves)
    spread = 1.4826 * median(abs(m - centre) for m in moves)
    limit = max(_STEP_SPREADS * spread, _MIN_STEP_BYTES)
    steps = sorted((m for m in moves if m > centre + limit), reverse=True)[:_MAX_STEPS]
    least = steps[-1] if steps else float("inf")
    lowest = min(moves)
    levels, level, dropped = [values[0]], values[0], sum(m < centre - limit for m in moves) != 1
    for move in moves:
        if move >= least or (move == lowest and not dropped):
            dropped = dropped or move == lowest
            move = centre
        level += move
        levels.append(level)
    return levels
