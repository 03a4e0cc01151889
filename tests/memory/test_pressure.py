"""The pressure ladder: thresholds, hysteresis, who is killed, and that a simulated run always comes back."""

import random

import pytest

from tamis.memory.pressure import PressureGauge, PressureLevel, PressureRules, WorkerUse, decide

GREEN, YELLOW, ORANGE, RED, BLACK = PressureLevel


@pytest.mark.parametrize(
    ("used", "level"),
    [(0, GREEN), (699, GREEN), (700, YELLOW), (800, ORANGE), (899, ORANGE), (900, RED), (970, BLACK), (2000, BLACK)],
)
def test_levels_rise_at_their_thresholds(used, level):
    assert PressureGauge().after(used, 1000) == PressureGauge(level)


@pytest.mark.parametrize(
    ("before", "used", "after"),
    [
        (YELLOW, 651, YELLOW),
        (YELLOW, 649, GREEN),
        (ORANGE, 750, ORANGE),
        (ORANGE, 749, YELLOW),
        (RED, 850, RED),
        (RED, 849, ORANGE),
        (BLACK, 920, BLACK),
        (BLACK, 919, RED),
        (BLACK, 100, GREEN),
        (YELLOW, 980, BLACK),
    ],
)
def test_levels_fall_five_points_later(before, used, after):
    assert PressureGauge(before).after(used, 1000).level is after


def test_green_allows_everything():
    assert decide(GREEN, [WorkerUse(1, 100, busy=False)], 1000, 100) == PressureRules()


def test_yellow_stops_growth_and_trims_idle_workers_fattest_first():
    workers = [WorkerUse(1, 100, busy=False), WorkerUse(2, 300, busy=True), WorkerUse(3, 200, busy=False)]
    assert decide(YELLOW, workers, 1000, 700) == PressureRules(allow_new_workers=False, allow_growth=False, trim=[3, 1])


def test_orange_adds_downstream_only():
    assert decide(ORANGE, [], 1000, 820) == PressureRules(
        allow_new_workers=False, allow_growth=False, downstream_only=True
    )


def test_red_kills_the_least_work_lost_per_byte_until_85_percent():
    workers = [
        WorkerUse(1, 300, busy=True, progress_s=60),
        WorkerUse(2, 300, busy=True, progress_s=1),
        WorkerUse(3, 300, busy=True, progress_s=30),
    ]
    assert decide(RED, workers, 1000, 930).kill == [2]
    assert decide(RED, workers, 1000, 1200).kill == [2, 3]


def test_red_kills_idle_workers_first_whatever_their_clock_says():
    workers = [WorkerUse(1, 300, busy=True, progress_s=1), WorkerUse(2, 100, busy=False, progress_s=500)]
    assert decide(RED, workers, 1000, 930).kill == [2]


def test_red_spares_victims_that_a_larger_one_made_needless():
    workers = [
        WorkerUse(1, 10, busy=True, progress_s=0.01),
        WorkerUse(2, 400, busy=True, progress_s=5),
        WorkerUse(3, 300, busy=True, progress_s=900),
    ]
    assert decide(RED, workers, 1000, 950).kill == [2]


def test_red_prefers_upstream_victims_when_the_loss_is_equal():
    workers = [
        WorkerUse(1, 200, busy=True, progress_s=5, downstream=True),
        WorkerUse(2, 200, busy=True, progress_s=5),
    ]
    assert decide(RED, workers, 1000, 930).kill == [2]


def test_red_never_kills_the_last_worker():
    assert decide(RED, [WorkerUse(1, 950, busy=True)], 1000, 950).kill == []
    two = [WorkerUse(1, 500, busy=True, progress_s=1), WorkerUse(2, 450, busy=True, progress_s=2)]
    assert decide(RED, two, 1000, 2000).kill == [1]


def test_red_does_not_pay_twice_for_a_dying_worker():
    workers = [
        WorkerUse(1, 200, busy=True, dying=True),
        WorkerUse(2, 300, busy=True),
        WorkerUse(3, 300, busy=True),
    ]
    assert decide(RED, workers, 1000, 950).kill == []
    assert decide(RED, [workers[0], workers[1]], 1000, 1500).kill == []


def test_black_keeps_the_busy_downstream_worker_that_is_furthest():
    workers = [
        WorkerUse(1, 300, busy=True, progress_s=90),
        WorkerUse(2, 300, busy=True, progress_s=5, downstream=True),
        WorkerUse(3, 300, busy=True, progress_s=8, downstream=True),
        WorkerUse(4, 50, busy=False, downstream=True),
    ]
    decision = decide(BLACK, workers, 1000, 980)
    assert decision.kill == [1, 2, 4]
    assert decision.serial
    assert decide(BLACK, [], 1000, 980).kill == []


@pytest.mark.parametrize("seed", range(10))
def test_simulated_leaky_workers_always_come_back_below_red_and_one_survives(seed):
    rng, budget, pressure = random.Random(seed), 1_000_000, PressureGauge()
    workers = dict.fromkeys(range(8), 20000)
    dying: dict[int, int] = {}  # id -> ticks until its memory is back
    next_id, n_red = 8, 0
    for _ in range(3_000):
        for i in workers:
            if i not in dying:
                workers[i] = max(10_000, workers[i] + rng.randint(-1_000, 2_500))
        used = sum(workers.values())
        pressure = pressure.after(used, budget)
        seen = [
            WorkerUse(i, used_i, rng.random() < 0.8, rng.random() * 60, False, i in dying)
            for i, used_i in workers.items()
        ]
        decision = decide(pressure.level, seen, budget, used)
        n_red += pressure.level >= RED
        assert not set(decision.kill) & set(dying)
        assert len(workers) - len(dying) - len(decision.kill) >= 1
        if pressure.level is RED:
            freed = sum(workers[i] for i in {*decision.kill, *dying})
            assert used - freed <= 850_000 or len(workers) - len(dying) - len(decision.kill) == 1
        dying.update(dict.fromkeys(decision.kill, 3))
        for i in [i for i, ticks in dying.items() if ticks == 0]:
            del workers[i], dying[i]
        dying = {i: ticks - 1 for i, ticks in dying.items()}
        if decision.allow_new_workers and len(workers) < 8:
            workers[next_id] = 20_000
            next_id += 1
        assert used <= budget * 1.02
    assert 0 < n_red < 1_000
