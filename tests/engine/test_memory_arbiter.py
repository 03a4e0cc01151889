"""The memory arbiter alone: caps, seats, and how many workers each segment gets."""

from __future__ import annotations

from tamis.engine.supervisor.memory_arbiter import MemoryArbiter, share_workers
from tamis.engine.supervisor.state import Config, Worker
from tamis.engine.units import Piece, PieceKind, Unit
from tamis.memory.predictor import Predictor

MB = 1_000_000


def arbiter(n_slots: int, pool: int = 200 * MB) -> tuple[MemoryArbiter, dict[int, Worker]]:
    workers: dict[int, Worker] = {}
    return MemoryArbiter(Config(2 * pool, pool, 20 * MB, n_slots), [Predictor(MB)], workers), workers


def test_caps_are_equal_shares_and_never_exceed_the_pool() -> None:
    judge, workers = arbiter(n_slots=4)
    for i in range(1, 5):
        assert judge.has_seat(feeding=False)
        cap = judge.next_cap(feeding=False, segment=0)
        assert cap == (200 - 4 * 20) * MB // 4
        workers[i] = Worker(i, 0, unit=Unit(i, [Piece(0, PieceKind.BYTES, "in", 0, 1)]), cap_bytes=cap)
    assert not judge.has_seat(feeding=False)
    assert judge.next_cap(feeding=False, segment=0) == 0
    assert judge.granted_bytes + len(workers) * 20 * MB <= 200 * MB


def test_what_stages_keep_lowers_the_number_of_seats() -> None:
    judge, _ = arbiter(n_slots=4)
    assert judge.n_seats(feeding=False) == 4
    judge.learn_setup(Worker(1, 0), 40 * MB, 70 * MB)
    assert judge.n_seats(feeding=False) == 2
    judge.learn_setup(Worker(1, 0), 300 * MB, 300 * MB)
    assert not judge.can_work
    assert judge.budget_for(300 * MB) == 400 * MB + 120 * MB
    assert judge.budget_for(100 * MB) >= 440 * MB  # what was too small is no remedy


def test_nodes_share_what_was_learned() -> None:
    judge, _ = arbiter(n_slots=4)
    other = judge.for_node(Config(200 * MB, 100 * MB, 20 * MB, 4), {})
    assert other.can_work
    judge.learn_setup(Worker(1, 0), 100 * MB, 100 * MB)
    assert not other.can_work


def test_shares_follow_the_measured_work() -> None:
    assert share_workers(8, [1.0, 3.0], [None, None]) == [2, 6]
    assert share_workers(9, [1.0, 1.0, 1.0], [None] * 3) == [3, 3, 3]
    assert share_workers(4, [0.0, 1.0], [None, None]) == [1, 3]


def test_every_segment_gets_one_even_beyond_the_slots() -> None:
    assert share_workers(1, [1.0, 1.0, 1.0], [None] * 3) == [1, 1, 1]


def test_fixed_numbers_are_kept() -> None:
    assert share_workers(4, [5.0, 1.0], [None, 3]) == [1, 3]
    assert share_workers(8, [1.0, 1.0], [2, 2]) == [2, 2]


def test_before_anything_is_measured_shares_are_equal() -> None:
    assert share_workers(5, [0.0, 0.0], [None, None]) == [3, 2]


def test_workers_that_ask_for_several_cpus_are_fewer() -> None:
    assert share_workers(8, [1.0], [None], cpus=[2.0]) == [4]
