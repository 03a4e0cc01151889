"""The supervisor against a simulated world: faults by the thousand, on a virtual clock.

A file is a list of record sizes. The fake executor "processes" a unit by listing the records that start in its range,
and fails in every way that a real one has been seen to fail. What is checked after every event: caps stay inside the
pool, queues stay bounded, no scratch file is used after it was given up. At the end: every record is committed exactly
once, or quarantined if (and only if) it is poison, by identity; the books balance; nothing is left in scratch.
"""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest

from tamis.engine.supervisor.state import Config, NodeSpec
from tamis.engine.units import PieceKind
from tests.engine.simulated import MB, TIMEOUT_S, WORKER_BYTES, Simulation
from tests.engine.worlds import File, Record, World

FAULTS = {
    "killed from outside": 0.03,
    "zombie report": 0.5,
    "pressure": 0.02,
    "died at start": 0.03,
    "server died": 0.01,
    "feeder died": 0.08,
    "slow once": 0.01,
    "leak": 0.02,
    "crash on allocation": 1.0,
    "node lost": 0.05,
}
POISON = ["error", "error", "crash", "exit", "hang"]


def make_world(rng: random.Random) -> World:
    files = []
    for _ in range(rng.randint(1, 4)):
        kind = rng.choice([PieceKind.BYTES, PieceKind.BYTES, PieceKind.STREAM, PieceKind.ROWS])
        scale = rng.choice([1_000, 100_000, 100_000, 1_000_000])
        sizes = [max(2, int(rng.expovariate(1 / scale))) for _ in range(rng.randint(0, 25))]
        sizes = [min(s, 4 * MB) for s in sizes]
        file = File(kind, sizes)
        at = 0
        while kind is PieceKind.ROWS and at < len(sizes):
            n = min(rng.randint(1, 8), len(sizes) - at)
            file.groups.append((at, n, sum(sizes[at : at + n])))
            at += n
        files.append(file)
    n_segments = rng.choice([1, 1, 2, 3])
    world = World(files, {}, set(), rng.choice([2.0, 8.0, 20.0, 40.0]), n_segments)
    world.fixed_bytes = rng.choice([MB, MB, MB, 40 * MB, 100 * MB])
    world.kept_bytes = rng.choice([0, 0, 0, 30 * MB])
    world.setup_bytes = world.kept_bytes * rng.choice([1, 2])
    records = sorted(world.everything())
    for record in rng.sample(records, min(len(records), rng.choice([0, 0, 1, 3]))):
        world.poison[record] = (rng.randrange(n_segments), rng.choice(POISON))
    world.dropped = {r for r in records if rng.random() < rng.choice([0.0, 0.2, 0.9]) and r not in world.poison}
    world.feed_bytes = rng.choice([0, 0, 50 * MB, 150 * MB])
    return world


def make_config(rng: random.Random, world: World, too_large: Record | None = None) -> Config:
    """Any budget in which every record (but one) can be done."""
    n = rng.randint(1, 4)
    largest = max((world.peak([r]) for r in world.everything() if r != too_large), default=0)
    cap = rng.choice([24 * MB, 30 * MB, 60 * MB, 200 * MB])
    pool = max(
        n * (WORKER_BYTES + cap),
        WORKER_BYTES + world.kept_bytes + largest * 3 // 2,
        WORKER_BYTES + world.setup_bytes,
        WORKER_BYTES + world.feed_bytes,
    )
    fixed = [rng.choice([None, None, None, 1]) for _ in range(world.n_segments)]
    config = Config(
        budget_bytes=int(pool / 0.88) + 50 * MB,
        pool_bytes=pool,
        worker_bytes=WORKER_BYTES,
        n_slots=n,
        fixed_workers=fixed,
        mode=rng.choice(["streaming", "streaming", "batch"]),
        max_partition_bytes=rng.choice([1 << 20, 4 << 20, 32 << 20]),
        queue_bytes=rng.choice([1 * MB, 8 * MB, 256 * MB]),
        patient_queue_bytes=rng.choice([0, 64 * MB]),
        timeout_s=TIMEOUT_S,
        usable=0.88,
        has_setup=[world.setup_bytes > 0] * world.n_segments,
    )
    return on_nodes(rng, config) if rng.random() < 0.4 else config


def on_nodes(rng: random.Random, config: Config) -> Config:
    """Return a cluster: the first node is like the single machine, others have less."""
    config.nodes = []
    config.in_all = [rng.random() < 0.5 for _ in config.fixed_workers]
    alike = rng.random() < 0.5
    for i in range(rng.randint(1, 3)):
        pool = (
            config.pool_bytes
            if not i or alike
            else max(WORKER_BYTES + 24 * MB, config.pool_bytes // rng.choice([2, 4]))
        )
        config.nodes.append(
            NodeSpec(
                i,
                f"node {i}",
                int(pool / 0.88) + 50 * MB,
                pool,
                WORKER_BYTES,
                rng.randint(1, 3),
                config.shared_bytes,
                (),
                tuple(config.fixed_workers),
            )
        )
    return config


def run_seed(seed: int, fired: Counter[str]) -> World:
    """Repeat runs until one ends by itself, each on the complement of earlier commits."""
    rng = random.Random(seed)
    world = make_world(rng)
    for attempt in range(6):
        faults = {**FAULTS, "descriptors": 0.03}
        if attempt < 3 and rng.random() < 0.3:
            faults[rng.choice(["disk full", "disk full at commit"])] = 0.05
        simulation = Simulation(world, make_config(rng, world), rng, faults, fired)
        end = {"stop_at": -1.0, "abandon_at": -1.0}
        if attempt < 3 and rng.random() < 0.4:
            end[rng.choice(["stop_at", "abandon_at"])] = rng.uniform(0.0, 20.0)
        simulation.run(**end)
        world.check_log()
        fired["resumed"] += attempt > 0
        for name, n in simulation.supervisor.status.counters.as_dict().items():
            fired["counted " + name] += n
        s = simulation.supervisor
        assert not s.status.infeasible, s.status.infeasible
        assert not s.status.fatal or s.status.fatal_kind == "disk", s.status.fatal
        if s.finished and not s.status.stopping:
            break
    assert world.everything() - world.written - world.quarantined - world.gone == set()
    assert world.quarantined == set(world.poison), f"{world.quarantined - set(world.poison)} are not poison"
    assert world.gone == world.dropped
    assert world.ledger.problems() == []
    return world


MUST_FIRE = [
    "killed from outside", "zombie report", "pressure", "died at start", "server died", "feeder died", "slow once",
    "leak", "crash on allocation", "memory error", "crash near the cap", "over the cap", "poison error", "poison crash",
    "poison exit", "poison hang", "too large", "slow commit", "kill before ready", "stopped", "supervisor killed",
    "resumed", "disk full", "disk full at commit", "steady pressure", "counted splits", "counted late",
    "counted recycled", "setup", "no room for setup", "asked", "no room to decode", "node lost", "node back",
    "descriptors",
]  # fmt: skip


def run_seeds(seeds: range) -> None:
    fired: Counter[str] = Counter()
    for seed in seeds:
        try:
            run_seed(seed, fired)
        except Exception as exc:
            raise AssertionError(f"seed {seed}: {exc}") from exc
    assert [name for name in MUST_FIRE if not fired[name]] == []


@pytest.mark.timeout(600)
def test_nothing_is_lost_or_done_twice() -> None:
    run_seeds(range(300))  # those from 300 on: many_seeds.py, `make torture-simulation`


def test_a_poisonous_record_is_quarantined_where_the_worker_holds_most_of_its_cap_anyway() -> None:
    run_seed(1666, Counter())


@pytest.mark.parametrize("seed", [854, 1081, 2449])
def test_a_feeder_that_waits_on_a_node_with_too_little_memory_does_not_wait_for_ever(seed: int) -> None:
    run_seed(seed, Counter())


@pytest.mark.parametrize("seed", [11690, 13618])
def test_workers_and_feeders_are_not_started_again_and_again(seed: int) -> None:
    run_seed(seed, Counter())


@pytest.mark.parametrize("seed", [863, 1666, 9099])
def test_a_record_that_ends_its_worker_is_not_called_too_large(seed: int) -> None:
    run_seed(seed, Counter())


def run_too_large(seed: int) -> None:
    """One record does not fit the first run: everything else is done, and a larger budget does the rest."""
    rng = random.Random(seed)
    world = make_world(rng)
    world.n_segments = 1
    world.feed_bytes = 0
    world.poison.clear()
    i = rng.randrange(len(world.files))
    old = world.files[i]
    world.files[i] = File(old.kind, [*old.sizes, 50 * MB])
    if old.kind is PieceKind.ROWS:
        world.files[i].groups = [*old.groups, (len(old.sizes), 1, 50 * MB)]
    record = (i, world.files[i].starts[-1])
    config = make_config(rng, world, record)
    config.nodes = None
    config.pool_bytes = min(config.pool_bytes, WORKER_BYTES + world.peak([record]) - 1)
    config.n_slots = max(1, config.pool_bytes // (WORKER_BYTES + 24 * MB))
    first = Simulation(world, config, rng, {"killed from outside": 0.03}, Counter())
    first.run()
    assert len(first.supervisor.status.infeasible) == 1
    assert "does not fit the memory budget even alone" in first.supervisor.status.infeasible[0]
    assert world.everything() - world.written - world.gone == {record}
    world.check_log()
    second = Simulation(world, make_config(rng, world), rng, {}, Counter())
    second.run()
    assert not second.supervisor.status.infeasible
    assert world.everything() - world.written - world.gone == set()
    assert world.ledger.problems() == []


def test_a_record_too_large_for_the_budget_ends_alone_and_is_done_with_more() -> None:
    for seed in range(20):
        try:
            run_too_large(seed)
        except Exception as exc:
            raise AssertionError(f"seed {seed}: {exc}") from exc


def make_fixed(seed: int) -> tuple[random.Random, World, Config]:
    """Many small records through a stage that takes the same for every call, or keeps a model.

    Room for one to three of it.
    """
    rng = random.Random(seed)
    world = World([File(PieceKind.BYTES, [rng.randint(500, 5000) for _ in range(1500)])], {}, set(), 4.0, 1)
    heavy = rng.randint(50, 300) * MB
    if seed % 2:
        world.fixed_bytes = heavy
    else:
        world.kept_bytes, world.setup_bytes = heavy, int(heavy * rng.uniform(1.0, 1.5))
    need = max(world.setup_bytes, world.kept_bytes + world.fixed_bytes)
    n_slots = rng.randint(1, 6)
    pool = int(rng.uniform(1.2, 3.0) * need) + 50 * MB
    return (
        rng,
        world,
        Config(
            pool * 2,
            pool,
            WORKER_BYTES,
            n_slots,
            usable=0.88,
            has_setup=[world.setup_bytes > 0],
            timeout_s=TIMEOUT_S,
            max_partition_bytes=1 << 20,
        ),
    )


@pytest.mark.parametrize("seed", range(40))
def test_a_cost_that_does_not_depend_on_the_data_is_learned_from_a_few_failures(seed: int) -> None:
    rng, world, config = make_fixed(seed)
    simulation = Simulation(world, config, rng, {}, Counter())
    simulation.steady = 0.0
    simulation.run()
    s = simulation.supervisor
    assert not s.status.infeasible
    assert not s.status.fatal, s.status.fatal
    assert world.everything() == world.written
    assert s.status.counters.memory_failures <= 4 + 2 * config.n_slots
    # 3.5 to 4.5 MB in partitions of 1 MB at most; the first ones are small
    assert s.status.counters.committed <= 20


@pytest.mark.parametrize("seed", range(40))
def test_a_need_that_the_budget_cannot_meet_ends_the_run_soon_and_names_one_that_can(seed: int) -> None:
    rng, world, config = make_fixed(seed)
    need = max(world.setup_bytes, world.kept_bytes + world.peak([(0, 0)]))
    config.pool_bytes = WORKER_BYTES + max(30 * MB, need // rng.choice([2, 5, 50]))
    simulation = Simulation(world, config, rng, {}, Counter())
    simulation.steady = 0.0
    simulation.run()
    s = simulation.supervisor
    assert s.status.fatal_kind == "budget", (s.status.fatal, s.status.infeasible)
    assert "stage 's" in s.status.fatal
    assert not world.written
    assert sum(simulation.n_attempts.values()) <= 40  # one partition down to one document, and two more
    if world.setup_bytes:
        assert sum(simulation.n_attempts.values()) <= 4
    named = re.search(r"--memory (\d+)MB or more", s.status.fatal)
    assert named is not None
    if "it asked for" in s.status.fatal:
        config.pool_bytes += int((int(named[1]) * MB - config.budget_bytes) * config.usable)
        again = Simulation(world, config, rng, {}, Counter())
        again.run()
        assert not again.supervisor.status.fatal
        assert world.everything() == world.written
