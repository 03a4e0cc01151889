"""Prediction of a partition's memory, learned from every partition's exact peak. Pure: no I/O, no clock.

peak above the worker's baseline = a + b * decoded_bytes + c * largest_record, times a factor that covers what the line
misses.

The line is recursive least squares with forgetting, kept as normal equations (information form) because those stay
exact under "no negative coefficient" and under few or identical samples; residuals are relative, so small partitions
count as much as large ones. The factor is conformal: a high order statistic of the last ratios peak / predicted, each
taken before its sample was learned; it assumes no distribution. A lasting change of behaviour restarts the model from
the samples that showed it, otherwise its ratios would inflate (or its old samples delay) the next 400 reservations.

A partition that failed says only that it needed more than its cap. Where a partition of its size has fitted into less,
its documents are to blame: the slope rises and partitions get smaller. Otherwise it is learned like a sample until
those that finished explain it, and after the first that finishes a partition of another size is asked for: two sizes
separate what costs by the byte from what costs in any case, which no smaller partition saves (`least_cap`: fewer
workers with larger caps do).
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from tamis.errors import UsageError

KIB, MIB = 1 << 10, 1 << 20

FORGETTING = 0.98
COVERAGE = 0.995
MARGIN = 1.05
WINDOW = 400
WINDOW_FOR_QUANTILE = 200

MIN_SIZE_BYTES = 64 * KIB
FIRST_SIZE_BYTES = MIB
LEAST_SIZE_BYTES = 256 * KIB  # partitions should have room for this much, before there is another worker
MAX_SIZE_BYTES = 256 * MIB
# Measured with keep-all over 1 GB: growing by 5 % per 20 partitions leaves a run at tiny partitions for minutes after
# one failure, and a second failure costs one split; so growth is quicker than in the literature.
GROWTH = 1.25
CLEAN_PER_GROWTH = 5

_PRIOR = (8.0 * MIB, 6.0, 4.0)  # a line through what text pipelines usually take; soon outweighed by samples
_PRIOR_WEIGHT = 0.001  # in samples: decides only the directions that the samples leave open
_KNOWN_WEIGHT = 1.0  # after a failure or from a profile: worth one sample
_MIN_FIT_BYTES = 64.0 * KIB
_SHIFT_RUN = 4  # this many ratios in a row ...
_SHIFT_FACTOR = 1.6  # ... this far on one side of the usual one mean that the behaviour changed
_N_FIRST = 8  # samples that are learned together, see _learn_first
_BEYOND = 1.5  # how far beyond its cap a failed partition is taken to have been, where what it asked for is not known
_KNOWN_FIXED_BYTES = 16.0 * MIB  # a larger constant shows itself in every sample: few of them are enough to trust it
_CLIP = 4.0  # one freak sample moves the line no more than a sample this many times the prediction

Coefficients = tuple[float, float, float]
Sample = tuple[float, float, float]  # decoded bytes, largest record, peak


class _Failed(NamedTuple):
    """A partition that did not fit: it needed more than `bound`, and is taken to have needed `peak`."""

    size: float
    largest: float
    bound: float
    peak: float


class Predictor:
    """One model per segment. Sizes are decoded bytes; peaks are bytes above the worker's baseline."""

    def __init__(self, max_size_bytes: int = MAX_SIZE_BYTES) -> None:
        self.max_size_bytes = max(MIN_SIZE_BYTES, max_size_bytes)
        self.n_samples = 0
        self._size_bytes = float(min(FIRST_SIZE_BYTES, self.max_size_bytes))
        self._slow_start = True
        self._may_double = False
        self._n_clean = 0
        self._recent_largest = 0.0
        self._first: list[Sample] | None = []  # the samples since a restart, while they are few
        self._recent: deque[Sample] = deque(maxlen=_SHIFT_RUN)
        self._recent_ratios: deque[float] = deque(maxlen=_SHIFT_RUN)
        self._ratios: deque[float] = deque()
        self._sorted_ratios: list[float] = []
        self._finished: deque[Sample] = deque(maxlen=_N_FIRST)  # the last ones, whatever has been restarted since
        self._failed: list[_Failed] = []
        self._undecided: list[float] | None = None  # after a failure: the sizes that finished, until they differ enough
        self._restart(_PRIOR, _PRIOR_WEIGHT)

    # -- learning -----------------------------------------------------------------------------------------------

    def observe(self, decoded_bytes: int, largest_record_bytes: int, peak_bytes: int) -> None:
        """Learn from a partition that finished: what it held and how far its memory rose."""
        x, m, peak = max(0.0, decoded_bytes), max(0.0, largest_record_bytes), max(0.0, peak_bytes)
        self.n_samples += 1
        self._finished.append((x, m, peak))
        if self._undecided is not None:
            self._undecided.append(x)
            if max(self._undecided) >= 2 * min(self._undecided) or len(self._undecided) >= _N_FIRST:
                self._undecided = None
        if self._first is not None:
            self._first.append((x, m, peak))
            self._learn_first()
        else:
            self._learn_next(x, m, peak)
        self._recent_largest = max(m, self._recent_largest * FORGETTING)
        self._count_clean(x)

    def observe_failure(
        self, decoded_bytes: int, cap_bytes: int, need_bytes: int = 0, largest_record_bytes: int = 0
    ) -> None:
        """Learn from a partition that did not fit into `cap_bytes`.

        `need_bytes`: what it had and asked for then, where known.
        """
        x, m = max(1.0, decoded_bytes), max(0.0, largest_record_bytes)
        bound = float(max(cap_bytes, need_bytes))
        if any(size >= x and peak < bound for size, _, peak in self._finished):
            self._steepen(x, cap_bytes)
            self._shrink(x)
            return
        if self._fit(x, m) >= bound:
            return  # no surprise: the cap was smaller than what the line asks for
        peak = bound * (MARGIN if need_bytes > cap_bytes else _BEYOND)
        # A larger partition needs no less: what was known of it is known better now.
        self._failed = [f for f in self._failed if f.size < x or f.bound > bound][-_N_FIRST // 2 :]
        self._failed.append(_Failed(x, m, bound, peak))
        self._undecided = []
        self._restart(self._theta if self._finished else _PRIOR, _PRIOR_WEIGHT)
        self._first = list(self._finished)
        self._learn_first()
        if self._theta[0] < self._fit(x, m) / 2:
            self._shrink(x)

    def _steepen(self, x: float, cap_bytes: int) -> None:
        """Forget the samples, for a line by which a partition of x bytes does not fit."""
        a, b, c = self._theta
        a = min(a, cap_bytes / 2)  # a line whose constant already fills the cap would say nothing about x
        self._restart((a, max(b, _BEYOND * (cap_bytes - a) / x), c), _KNOWN_WEIGHT)

    def _shrink(self, x: float) -> None:
        self._slow_start = self._may_double = False
        self._n_clean = 0
        self._size_bytes = max(float(MIN_SIZE_BYTES), min(self._size_bytes, x) / 2)

    # -- asking -------------------------------------------------------------------------------------------------

    @property
    def coefficients(self) -> Coefficients:
        """(a, b, c): bytes, bytes per decoded byte, bytes per byte of the largest record."""
        return self._theta

    @property
    def factor(self) -> float:
        """Factor on the line that keeps all but 0.5 % of partitions inside."""
        return self._high_ratio * MARGIN * (1.0 + self._doubt)

    @property
    def _high_ratio(self) -> float:
        """A high order statistic of peak / predicted; the largest while there are few."""
        n = len(self._sorted_ratios)
        rank = n if n < WINDOW_FOR_QUANTILE else min(n, math.ceil(COVERAGE * (n + 1)))
        return self._sorted_ratios[rank - 1] if n else 1.0

    @property
    def _doubt(self) -> float:
        """The largest of n ratios is exceeded by the next one in 1 of n + 1 cases: too often while n is small."""
        n = len(self._sorted_ratios)
        return 0.0 if n >= WINDOW_FOR_QUANTILE else 2.0 / (n + 2)

    @property
    def _certain(self) -> float:
        """The part of a large constant that needs no room for doubt: with a model of 1 GB that would be another."""
        return max(0.0, self._theta[0] - _KNOWN_FIXED_BYTES)

    def reserve(self, decoded_bytes: int, largest_record_bytes: int = 0) -> int:
        """Return the bytes to reserve, above the worker's baseline, before such a partition starts."""
        fit = self._fit(max(0.0, decoded_bytes), max(0.0, largest_record_bytes))
        need = (fit + self._doubt * max(0.0, fit - self._certain)) * self._high_ratio * MARGIN
        return math.ceil(max(need, _MIN_FIT_BYTES))

    def least_cap(self) -> int:
        """Return the cap that a worker needs for partitions of a sensible size.

        If not every worker gets this much, there are too many workers.
        """
        largest = int(self._recent_largest)
        return self.reserve(max(LEAST_SIZE_BYTES, largest), largest)

    def typical_need(self) -> int:
        """Return the reserve of a partition as large as the largest of the last ones."""
        largest = int(self._recent_largest)
        sizes = [int(size) for size, _, _ in self._finished]
        return max(self.least_cap(), self.reserve(max(sizes, default=0), largest))

    def best_size(self, cap_bytes: int, largest_record_bytes: int = 0) -> int:
        """Return the largest partition size whose reserve fits into `cap_bytes`; 0 if none does.

        At most max_size_bytes.
        """
        a, b, c = self._theta
        ratio, doubt = self._high_ratio, self._doubt
        if ratio <= 0:
            return self.max_size_bytes
        # One byte is left for the rounding up in reserve().
        fit = ((cap_bytes - 1) / (ratio * MARGIN) + doubt * self._certain) / (1.0 + doubt)
        free_bytes = fit - a - c * max(0.0, largest_record_bytes)
        if cap_bytes < _MIN_FIT_BYTES * max(1.0, self.factor) or free_bytes <= 0:
            return 0
        return self.max_size_bytes if b * self.max_size_bytes <= free_bytes else int(free_bytes / b)

    def next_size(self, cap_bytes: int, *, may_grow: bool = True) -> int:
        """Return the size of the next partition for a worker with `cap_bytes`, in [64 KiB, max_size_bytes].

        Slow start doubles after each partition of the present size while the doubled one would fit; then the model
        decides, under a ceiling that a failure halves and 5 clean partitions raise by a quarter.
        """
        largest = int(self._recent_largest)
        best = self.best_size(cap_bytes, largest)
        if self._undecided:  # one has finished after a failure: another size shows what both cost in any case
            last = self._undecided[-1]
            return int(last / 4) if last >= 4 * MIN_SIZE_BYTES else min(int(last * 4), self.max_size_bytes)
        if may_grow and self._slow_start and self._may_double:
            self._may_double = False
            doubled = min(2 * self._size_bytes, float(self.max_size_bytes))
            self._slow_start = doubled <= best and doubled < self.max_size_bytes
            self._size_bytes = max(self._size_bytes, min(doubled, float(best)))
        elif may_grow and not self._slow_start and self._n_clean >= CLEAN_PER_GROWTH:
            self._n_clean = 0
            self._size_bytes = min(self._size_bytes * GROWTH, float(self.max_size_bytes))
        return max(MIN_SIZE_BYTES, min(int(self._size_bytes), best))

    # -- keeping ------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON: the line, the ratios of the factor and the size reached."""
        return {
            "version": 1,
            "coefficients": list(self._theta),
            "ratios": [round(ratio, 5) for ratio in self._ratios],
            "n_samples": self.n_samples,
            "size_bytes": int(self._size_bytes),
            "slow_start": self._slow_start,
            "largest_record_bytes": int(self._recent_largest),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], max_size_bytes: int = MAX_SIZE_BYTES) -> Predictor:
        """Return a predictor that continues from to_dict(); raise UsageError if `data` is not such a dictionary."""
        if data.get("version") != 1:
            raise UsageError(f"memory profile: expected version 1, got {data.get('version')!r}; delete the profile")
        theta = _numbers(data, "coefficients", 1e15)
        ratios = _numbers(data, "ratios", 1e6)
        if len(theta) != 3 or len(ratios) > WINDOW:
            raise UsageError(
                f"memory profile: expected 3 coefficients and at most {WINDOW} ratios, "
                f"got {len(theta)} and {len(ratios)}; delete the profile"
            )
        n_samples, size, largest = (
            _numbers({key: [data.get(key)]}, key, 1e15)[0]
            for key in ("n_samples", "size_bytes", "largest_record_bytes")
        )
        predictor = cls(max_size_bytes)
        predictor._restart((theta[0], theta[1], theta[2]), _KNOWN_WEIGHT)
        for ratio in ratios:
            predictor._add_ratio(ratio)
        if len(ratios) >= _N_FIRST:
            predictor._first = None
        predictor.n_samples = int(n_samples)
        if len(ratios) >= _N_FIRST:  # the line is known: let it decide, whatever budget it was learned under
            predictor._size_bytes, predictor._slow_start = float(predictor.max_size_bytes), False
        else:
            predictor._size_bytes = min(max(size, float(MIN_SIZE_BYTES)), float(predictor.max_size_bytes))
            predictor._slow_start = data.get("slow_start") is True
        predictor._recent_largest = largest
        return predictor

    # -- inside -------------------------------------------------------------------------------------------------

    def _fit(self, x: float, m: float) -> float:
        a, b, c = self._theta
        return max(a + b * x + c * m, _MIN_FIT_BYTES)

    def _restart(self, prior: Coefficients, weight: float) -> None:
        """Forget all samples; `prior` counts as much as `weight` samples."""
        self._prior, self._prior_weight = prior, weight
        self._theta: Coefficients = prior
        self._clear_sums()
        self._first = []
        self._ratios.clear()
        self._sorted_ratios.clear()
        self._recent.clear()
        self._recent_ratios.clear()

    def _clear_sums(self) -> None:
        self._moments = [0.0] * 6  # sums of w, w*x, w*m, w*x*x, w*x*m, w*m*m
        self._targets = [0.0] * 3  # sums of w*y, w*x*y, w*m*y

    def _learn_first(self) -> None:
        """Learn the few samples since a restart anew, and measure them against what they taught.

        Ratios against a guessed line would say how wrong the guess was, and stay in the window for 400 partitions.
        """
        samples = self._first or []
        self._learn_all(samples)
        self._failed = [f for f in self._failed if not any(x >= f.size and p < f.bound for x, _, p in samples)]
        unexplained = [(f.size, f.largest, f.peak) for f in self._failed if self._fit(f.size, f.largest) < f.bound]
        if unexplained:
            self._learn_all([*unexplained, *samples])
        self._ratios.clear()
        self._sorted_ratios.clear()
        for x, m, peak in samples:
            self._add_ratio(peak / self._fit(x, m))
        if len(samples) >= _N_FIRST:
            self._first = None

    def _learn_all(self, samples: Sequence[Sample]) -> None:
        """Learn these and nothing else.

        A guessed prior is brought to their height first: it gives directions, not sizes.
        """
        self._clear_sums()
        self._theta = self._prior
        if samples and self._prior_weight == _PRIOR_WEIGHT:
            by = median(p / self._fit(x, m) for x, m, p in samples) or 1.0
            self._theta = self._prior = (by * self._prior[0], by * self._prior[1], self._prior[2])
        for sample in samples:
            self._learn(*sample)

    def _learn_next(self, x: float, m: float, peak: float) -> None:
        fit = self._fit(x, m)
        self._recent.append((x, m, peak))
        self._recent_ratios.append(peak / fit)
        if self._has_shifted():
            samples = list(self._recent)
            self._restart(_scaled(self._theta, peak / fit), _PRIOR_WEIGHT)
            self._first = samples
            self._learn_first()
        else:
            self._add_ratio(peak / fit)
            self._learn(x, m, min(max(peak, fit / _CLIP), fit * _CLIP))

    def _learn(self, x: float, m: float, peak: float) -> None:
        fit = self._fit(x, m)
        w = 1.0 / (fit * fit)  # relative residuals
        s, t, keep = self._moments, self._targets, FORGETTING
        wx, wm = w * x, w * m
        self._moments = [
            keep * s[0] + w,
            keep * s[1] + wx,
            keep * s[2] + wm,
            keep * s[3] + wx * x,
            keep * s[4] + wx * m,
            keep * s[5] + wm * m,
        ]
        self._targets = [keep * t[0] + w * peak, keep * t[1] + wx * peak, keep * t[2] + wm * peak]
        self._theta = _solve_nonnegative(self._moments, self._targets, self._prior, self._prior_weight)

    def _add_ratio(self, ratio: float) -> None:
        if len(self._ratios) == WINDOW:
            oldest = self._ratios.popleft()
            del self._sorted_ratios[bisect_left(self._sorted_ratios, oldest)]
        self._ratios.append(ratio)
        insort(self._sorted_ratios, ratio)

    def _has_shifted(self) -> bool:
        n = len(self._sorted_ratios)
        if len(self._recent_ratios) < _SHIFT_RUN:
            return False
        median_ratio = self._sorted_ratios[n // 2]
        return (
            min(self._recent_ratios) > median_ratio * _SHIFT_FACTOR
            or max(self._recent_ratios) < median_ratio / _SHIFT_FACTOR
        )

    def _count_clean(self, x: float) -> None:
        # Partitions far below the ceiling (file ends, split halves) prove nothing about it.
        if x >= self._size_bytes / 2:
            self._may_double = True
            self._n_clean += 1


def _scaled(theta: Coefficients, by: float) -> Coefficients:
    return theta[0] * by, theta[1] * by, theta[2] * by


def _numbers(data: Mapping[str, Any], key: str, largest: float) -> list[float]:
    values = data.get(key)
    if not isinstance(values, list) or not all(
        isinstance(v, (int, float)) and not isinstance(v, bool) and 0 <= v <= largest for v in values
    ):
        raise UsageError(
            f"memory profile: {key}: expected numbers in [0, {largest:g}], got {values!r:.80}; delete the profile"
        )
    return [float(v) for v in values]


def _solve_nonnegative(s: list[float], t: list[float], prior: Coefficients, weight: float) -> Coefficients:
    """Solve least squares with a ridge towards `prior` and no negative coefficient, by trying every free set.

    Works in units of the prior (u = theta / scale), which brings all entries to a similar size; a coefficient of about
    0 gets a natural scale instead, or nothing could ever move it again.
    """
    p0, p1, p2 = max(prior[0], 1.0 * MIB), max(prior[1], 1.0), max(prior[2], 1.0)
    a00, a11, a22 = s[0] * p0 * p0 + weight, s[3] * p1 * p1 + weight, s[5] * p2 * p2 + weight
    a01, a02, a12 = s[1] * p0 * p1, s[2] * p0 * p2, s[4] * p1 * p2
    v0, v1, v2 = (
        t[0] * p0 + weight * prior[0] / p0,
        t[1] * p1 + weight * prior[1] / p1,
        t[2] * p2 + weight * prior[2] / p2,
    )

    c00, c01, c02 = a11 * a22 - a12 * a12, a02 * a12 - a01 * a22, a01 * a12 - a02 * a11
    det = a00 * c00 + a01 * c01 + a02 * c02
    if det > 1e-12 * a00 * a11 * a22:
        u0 = (c00 * v0 + c01 * v1 + c02 * v2) / det
        u1 = (c01 * v0 + (a00 * a22 - a02 * a02) * v1 + (a01 * a02 - a00 * a12) * v2) / det
        u2 = (c02 * v0 + (a01 * a02 - a00 * a12) * v1 + (a00 * a11 - a01 * a01) * v2) / det
        if u0 >= 0 and u1 >= 0 and u2 >= 0:
            return u0 * p0, u1 * p1, u2 * p2

    # One coefficient alone is always feasible; pairs are kept when both are non-negative. The gain v.u is what is
    # minimized, negated.
    best, best_gain = (v0 / a00, 0.0, 0.0), v0 * v0 / a00
    for candidate, gain in (
        ((0.0, v1 / a11, 0.0), v1 * v1 / a11),
        ((0.0, 0.0, v2 / a22), v2 * v2 / a22),
        _pair(a00, a01, a11, v0, v1, (0, 1)),
        _pair(a00, a02, a22, v0, v2, (0, 2)),
        _pair(a11, a12, a22, v1, v2, (1, 2)),
    ):
        if gain > best_gain:
            best, best_gain = candidate, gain
    return best[0] * p0, best[1] * p1, best[2] * p2


def _pair(a: float, b: float, c: float, v: float, w: float, axes: tuple[int, int]) -> tuple[Coefficients, float]:
    """Solve [[a, b], [b, c]] u = (v, w); a gain of -1 when that is singular or negative."""
    det = a * c - b * b
    u, z = c * v - b * w, a * w - b * v
    if det <= 1e-12 * a * c or u < 0 or z < 0:
        return (0.0, 0.0, 0.0), -1.0
    u, z = u / det, z / det
    full = [0.0, 0.0, 0.0]
    full[axes[0]], full[axes[1]] = u, z
    return (full[0], full[1], full[2]), v * u + w * z
