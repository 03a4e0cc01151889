"""The worker pool alone: nodes, workers, limits."""

from __future__ import annotations

from tamis.engine.supervisor.actions import KillWorker, Note, StartWorker, StopWorker, TrimWorker
from tamis.engine.supervisor.memory_arbiter import MemoryArbiter
from tamis.engine.supervisor.state import FEEDER, Config, Counters, KillReason, NodeSpec, Worker
from tamis.engine.supervisor.worker_pool import WorkerPool
from tamis.engine.units import Piece, PieceKind, Unit
from tamis.memory.predictor import Predictor

MB = 1_000_000


def worker_pool(nodes: list[NodeSpec] | None = None, **more: object) -> WorkerPool:
    config = Config(200 * MB, 100 * MB, 20 * MB, 4, [None], timeout_s=100.0, nodes=nodes, **more)
    workers: dict[int, Worker] = {}
    return WorkerPool(config, MemoryArbiter(config, [Predictor(MB)], workers), workers, Counters())


def unit() -> Unit:
    return Unit(1, [Piece(0, PieceKind.BYTES, "in0", 0, 100)])


def started(pool: WorkerPool, segment: int = 0, node: int = 0) -> Worker:
    worker = pool.workers[pool.start(pool.nodes[node], segment).worker]
    worker.ready = True
    return worker


def test_every_assignment_has_a_new_fence() -> None:
    pool = worker_pool()
    worker = started(pool)
    fences = [pool.assign(worker, unit(), 30 * MB, 0.0).fence for _ in range(3)]
    assert fences == [1, 2, 3]
    assert (worker.fence, worker.cap_bytes, pool.busy, len(pool.units)) == (3, 30 * MB, True, 1)


def test_a_worker_is_killed_once() -> None:
    pool = worker_pool()
    worker = started(pool)
    assert pool.kill(worker, KillReason.TIMEOUT) == [KillWorker(worker.id, KillReason.TIMEOUT)]
    assert pool.kill(worker, KillReason.PRESSURE) == []
    assert worker.kill_reason is KillReason.TIMEOUT


def test_a_busy_worker_has_a_deadline_and_a_feeder_that_waits_has_none() -> None:
    pool = worker_pool()
    worker, feeder = started(pool), started(pool, FEEDER)
    for one in (worker, feeder):
        pool.assign(one, unit(), 30 * MB, 0.0)
    feeder.is_blocked = True
    assert pool.enforce_timeout(100.0) == []
    assert pool.enforce_timeout(100.1) == [KillWorker(worker.id, KillReason.TIMEOUT)]


def test_a_worker_over_its_cap_is_killed() -> None:
    pool = worker_pool()
    worker = started(pool)
    pool.assign(worker, unit(), 30 * MB, 0.0)
    ceiling = pool.ceiling(worker.id, 30 * MB)
    assert pool.enforce_memory(0, 100 * MB, {worker.id: ceiling}, 1.0) == []
    assert pool.enforce_memory(0, 100 * MB, {worker.id: ceiling + 1}, 1.0) == [
        KillWorker(worker.id, KillReason.OVER_CAP)
    ]


def test_pressure_is_noted_and_idle_workers_are_trimmed() -> None:
    pool = worker_pool()
    worker = started(pool)
    note, trim = pool.enforce_memory(0, 150 * MB, {worker.id: 20 * MB}, 1.0)
    assert isinstance(note, Note)
    assert trim == TrimWorker(worker.id)


def test_room_is_made_by_an_idle_worker_of_another_segment() -> None:
    pool = worker_pool()
    feeder = started(pool, FEEDER)
    assert pool.make_room(pool.nodes[0], FEEDER) == []
    assert pool.make_room(pool.nodes[0], 0) == [StopWorker(feeder.id)]
    assert pool.make_room(pool.nodes[0], 0) == []  # one at a time


def test_nodes_have_workers_and_budgets_of_their_own() -> None:
    specs = [NodeSpec(i, f"node {i}", 100 * MB * i, 50 * MB * i, 20 * MB, 1) for i in (1, 2)]
    pool = worker_pool(nodes=specs[:1])
    pool.add_node(specs[1])
    first, second = started(pool, node=1), started(pool, node=2)
    assert [list(node.workers) for node in pool.nodes.values()] == [[first.id], [second.id]]
    assert pool.config_of(second).pool_bytes == 100 * MB
    assert pool.remove_node(2) is not None
    assert (pool.config.nodes, pool.config_of(second).pool_bytes) == (specs[:1], 100 * MB)
    assert pool.remove(second.id) is second
    assert list(pool.workers) == [first.id]


def test_devices_are_free_again_when_the_process_is_gone() -> None:
    pool = worker_pool(gpus=[1.0], devices=["7"])
    node = pool.nodes[0]
    start = pool.start(node, 0)
    assert isinstance(start, StartWorker)
    pool.retire(pool.workers[start.worker])
    assert not node.devices.has_room(0)
    pool.remove(start.worker)
    assert node.devices.has_room(0)
