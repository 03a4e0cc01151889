"""The floor trend: leaks are found, noise and one-time growth are not."""

import random

import pytest

from tamis.memory.leaks import FloorTrend

CAP = 200_000_000


def trend_of(floors):
    trend = FloorTrend()
    for floor in floors:
        trend.add(floor)
    return trend


def test_slope_of_a_straight_line():
    trend = trend_of([50_000_000 + 1_000 * i for i in range(100)])
    assert trend.slope_bytes == 1_000
    assert trend.growth_bytes == 94_000


def test_few_points_say_nothing():
    assert trend_of([10_000_000 * i for i in range(34)]).slope_bytes == 0
    assert trend_of([10_000_000 * i for i in range(35)]).slope_bytes == 10_000_000


@pytest.mark.parametrize("leak_bytes", [200_000, 1_000_000])
def test_a_leak_is_found_within_200_partitions(leak_bytes):
    rng = random.Random(1)
    trend = trend_of([60_000_000 + leak_bytes * i + rng.randrange(3_000_000) for i in range(200)])
    assert trend.should_recycle(CAP)


def test_a_leak_that_would_take_long_to_matter_is_left_alone():
    trend = trend_of([60_000_000 + 30_000 * i for i in range(200)])
    assert not trend.should_recycle(CAP)
    assert trend.should_recycle(50_000_000)


@pytest.mark.parametrize("seed", range(50))
def test_noise_is_not_a_leak(seed):
    rng = random.Random(seed)
    assert not trend_of([60_000_000 + rng.randrange(6_000_000) for _ in range(200)]).should_recycle(CAP)


def test_one_step_is_not_a_leak():
    assert not trend_of([60_000_000] * 20 + [90_000_000] * 180).should_recycle(CAP)


def test_growth_during_the_first_partitions_is_ignored():
    assert not trend_of([i * 20_000_000 for i in range(5)] + [100_000_000] * 60).should_recycle(CAP)


def test_only_the_last_200_points_count():
    assert trend_of([i * 1_000_000 for i in range(100)] + [100_000_000] * 200).slope_bytes == 0
