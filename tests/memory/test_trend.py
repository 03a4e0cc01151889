"""The statistics of short series, against values worked out by hand or by the textbook formulas."""

import random

import pytest

from tamis.memory.trend import _inflation, _ranks, _variance, fit, thin


def test_a_straight_line():
    found = fit([10, 13, 16, 19, 22, 25])
    assert (found.slope, found.low, found.high, found.spread, found.n_points) == (3, 3, 3, 0, 6)
    assert found.p == pytest.approx(0.0043, abs=0.0001)  # S = 15, variance 28 1/3: z = 14 / 5.323


def test_slopes_are_per_step():
    assert fit([0, 10, 20, 30], step=5).slope == 2


def test_one_wild_point_does_not_move_the_slope():
    assert fit([0, 1, 2, 300, 4, 5, 6, 7]).slope == pytest.approx(1, abs=0.01)


def test_a_constant_series_has_no_trend():
    found = fit([5.0] * 20)
    assert (found.slope, found.low, found.high, found.p) == (0, 0, 0, 0.5)


def test_a_falling_series_is_no_rise():
    found = fit(list(range(30, 0, -1)))
    assert found.slope == found.high == -1
    assert found.p > 0.999


def test_the_bounds_hold_the_true_slope_in_most_of_the_cases():
    held = 0
    for seed in range(200):
        rng = random.Random(seed)
        found = fit([0.5 * i + rng.gauss(0, 3) for i in range(40)])
        held += found.low <= 0.5 <= found.high
    assert 184 <= held <= 199  # 95 % of 200, within three standard deviations


def test_ties_take_from_the_variance():
    assert _variance([1, 2, 3, 4]) == pytest.approx(4 * 3 * 13 / 18)
    assert _variance([1, 1, 3, 4]) == pytest.approx((4 * 3 * 13 - 2 * 1 * 9) / 18)


def test_equal_values_share_a_rank():
    assert _ranks([10, 30, 20, 20]) == [1, 4, 2.5, 2.5]


def test_neighbours_that_are_alike_widen_the_variance():
    rng = random.Random(3)
    white = [rng.gauss(0, 1) for _ in range(60)]
    wandering, level = [], 0.0
    for move in white:
        level = 0.8 * level + move
        wandering.append(level)
    assert _inflation(_ranks(white)) < 2
    assert _inflation(_ranks(wandering)) > 3
    assert _inflation([1.0] * 20) == 1


def test_the_correction_keeps_alarms_on_remembering_noise_rare():
    plain = corrected = 0
    for seed in range(200):
        rng, level, made = random.Random(seed), 0.0, []
        for _ in range(40):
            level = 0.8 * level + rng.gauss(0, 1)
            made.append(level)
        found = fit(made)
        corrected += found.p < 0.01
        plain += abs(found.slope) > 0 and _uncorrected_p(made) < 0.01
    assert plain >= 30
    assert corrected <= plain // 2


def _uncorrected_p(values):
    import math

    n = len(values)
    s = sum((values[j] > values[i]) - (values[j] < values[i]) for i in range(n) for j in range(i + 1, n))
    return 0.5 * math.erfc((s - (s > 0) + (s < 0)) / math.sqrt(_variance(values)) / math.sqrt(2))


def test_thinning_keeps_the_smallest_of_each_run_and_the_newest_points():
    assert thin([3, 1, 2], 40) == ([3, 1, 2], 1)
    assert thin([9, 5, 6, 4, 8, 7, 1], 3) == ([4, 1], 3)  # 9 is the odd one at the old end
