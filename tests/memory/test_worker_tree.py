"""One cap for a worker and all below it: at no moment may they have more together."""

from __future__ import annotations

import random

from tamis.memory.worker_tree import LEAST_BYTES, FamilyMemory, ProcessFamily

MB = 1_000_000


class World:
    """Pretended processes: what each has allocated and may allocate."""

    def __init__(self) -> None:
        self.allocated: dict[int, int] = {}
        self.limits: dict[int, int] = {}

    def data(self, pid: int) -> int | None:
        return self.allocated.get(pid)

    def limit(self, pid: int, n_bytes: int) -> None:
        self.limits[pid] = n_bytes

    def fork(self, parent: int, child: int) -> None:
        self.allocated[child], self.limits[child] = self.allocated[parent], self.limits[parent]


def made(cap_mb: int = 100) -> tuple[ProcessFamily, World]:
    world = World()
    world.allocated[1] = 50 * MB
    family = ProcessFamily(1, 50 * MB, world)
    family.grant(cap_mb * MB)
    return family, world


def test_a_worker_alone_has_the_whole_cap_above_what_it_began_with() -> None:
    family, world = made()
    assert world.limits == {1: 150 * MB}
    world.allocated[1] = 120 * MB
    family.grant(80 * MB)
    assert world.limits == {1: 130 * MB}


def test_what_is_mapped_is_taken_from_what_may_be_allocated() -> None:
    family, world = made()
    assert family.map(30 * MB)
    assert world.limits == {1: 120 * MB}
    world.allocated[1] = 110 * MB
    assert not family.map(11 * MB)  # 60 allocated and 30 mapped
    assert (family.mapped_bytes, world.limits) == (30 * MB, {1: 120 * MB})
    assert family.map(10 * MB)
    family.note_mapped(0)
    assert world.limits == {1: 150 * MB}


def test_a_child_shares_what_is_left() -> None:
    family, world = made()
    world.allocated[1] = 70 * MB
    assert family.fork(1)
    assert world.limits == {1: 100 * MB}  # 80 are left, of which the child has 20: 30 for it, 30 for its parent
    world.fork(1, 2)
    family.update({1: 0, 2: 1})
    assert (family.pids, world.limits) == ({1, 2}, {1: 100 * MB, 2: 100 * MB})
    world.allocated[2] += 30 * MB
    family.update({1: 0, 2: 1})
    assert world.limits == {1: 85 * MB, 2: 115 * MB}
    del world.allocated[2]
    family.update({1: 0})
    assert world.limits[1] == 150 * MB


def test_eight_forks_share_evenly_when_each_is_seen_before_the_next() -> None:
    family, world = made(90)
    parents = {1: 0}
    for child in range(2, 10):
        family.update(parents)
        assert family.fork(1)
        world.fork(1, child)
        parents[child] = 1
    family.update(parents)
    assert world.limits == dict.fromkeys(range(1, 10), 60 * MB)


def test_children_that_were_not_seen_yet_keep_what_they_were_given() -> None:
    family, world = made()
    assert family.fork(1)
    world.fork(1, 2)
    assert not family.map(60 * MB)  # 50 are the child's, wherever it is
    assert family.map(40 * MB)
    assert world.limits == {1: 60 * MB, 2: 100 * MB}


def test_a_fork_that_would_leave_nothing_for_anybody_is_refused() -> None:
    family, world = made()
    world.allocated[1] = 100 * MB
    assert not family.fork(1)  # its child might write to all of the 50 MB
    assert world.limits == {1: 150 * MB}
    assert family.fork(1, copies=False)
    world.allocated[1] = 150 * MB - 3 * LEAST_BYTES
    assert not family.fork(1, copies=False)


def test_a_child_that_never_shows_up_gives_its_share_back() -> None:
    family, world = made()
    assert family.fork(1)
    for _ in range(3):
        family.update({1: 0})
    assert world.limits == {1: 150 * MB}
    assert not family.has_children


def test_who_asks_for_more_than_its_share_gets_it_while_there_is_enough() -> None:
    family, world = made()
    assert family.fork(1)
    world.fork(1, 2)
    family.update({1: 0, 2: 1})
    assert family.allocate(2, 40 * MB)
    assert world.limits == {1: 100 * MB, 2: 100 * MB}  # it had that much
    assert family.allocate(2, 80 * MB)
    assert world.limits[2] >= 50 * MB + 80 * MB
    assert world.limits[1] + world.limits[2] <= 100 * MB + 100 * MB
    assert not family.allocate(1, 30 * MB)
    family.update({1: 0, 2: 1})
    assert world.limits[2] >= 130 * MB  # it may not have come to it yet
    world.allocated[2] += 80 * MB
    for _ in range(3):
        family.update({1: 0, 2: 1})
    assert world.limits == {1: 60 * MB, 2: 140 * MB}


def test_another_program_starts_with_nothing() -> None:
    family, world = made()
    world.allocated[1] = 60 * MB
    assert family.fork(1, copies=False)
    world.fork(1, 2)
    family.exec(2)
    family.update({1: 0, 2: 1})
    assert world.limits == {1: 105 * MB, 2: 45 * MB}  # what it still has of its parent will be gone
    world.allocated[2] = 3 * MB
    family.update({1: 0, 2: 1})
    assert world.limits == {1: 60 * MB + 87 * MB // 2, 2: 3 * MB + 87 * MB // 2}


def test_somebody_who_was_not_announced_is_found_and_counts_from_the_beginning() -> None:
    family, world = made()
    world.fork(1, 2)
    world.allocated[2] += 20 * MB
    family.update({1: 0, 2: 1})
    assert world.limits == {1: 90 * MB, 2: 110 * MB}


def test_together_they_never_have_more_than_the_cap() -> None:
    """Random life: allocating up to their limits at any moment, forking, mapping, ending."""
    for seed in range(50):
        chance = random.Random(seed)
        family, world = made()
        parents = {1: 0}
        starts = {1: 50 * MB}
        mapped = 0
        for step in range(200):
            pid = chance.choice(list(parents))
            what = chance.choice(["allocate", "allocate", "free", "fork", "map", "end", "look"])
            if what == "fork":
                family.update(parents)  # as whoever answers at the gate does
            match what:
                case "allocate":
                    more = chance.randrange(40 * MB)
                    if more > 16 * MB:
                        family.allocate(pid, more)
                    if world.allocated[pid] + more <= world.limits[pid]:
                        world.allocated[pid] += more
                case "free" if world.allocated[pid] > starts[pid]:
                    world.allocated[pid] -= chance.randrange(world.allocated[pid] - starts[pid])
                case "fork" if family.fork(pid):
                    child = 10 + step
                    world.fork(pid, child)
                    parents[child], starts[child] = pid, 50 * MB  # it writes to all it has
                case "map":
                    more = chance.randrange(40 * MB)
                    mapped += more if family.map(more) else 0
                case "end" if pid != 1:
                    del parents[pid], world.allocated[pid]
                case "look":
                    family.update(parents)
            grown = sum(world.allocated[p] - starts[p] for p in parents)
            assert grown + mapped <= 100 * MB, (seed, step)


def test_a_worker_alone_has_nothing_to_add_to_its_own_report() -> None:
    family, world = made()
    world.allocated[1] = 140 * MB
    assert family.account == FamilyMemory()
    assert not family.allocate(1, 60 * MB)
    family.refuse(1, 60 * MB)
    assert family.account == FamilyMemory(requested_bytes=60 * MB)
    family.grant(100 * MB)
    assert family.account == FamilyMemory()


def test_what_mappings_and_children_took_is_reported_beyond_what_was_there_before() -> None:
    family, world = made()
    assert family.map(10 * MB)
    family.grant(100 * MB)  # the next unit: the mapping stays
    world.allocated[1] = 60 * MB
    assert family.fork(1)
    world.fork(1, 2)
    world.allocated[2] += 5 * MB
    family.update({1: 0, 2: 1})
    assert family.account == FamilyMemory(
        peak_bytes=25 * MB, held_bytes=25 * MB
    )  # 10 of the worker, 10 copied and 5 of the child
    del world.allocated[2]
    family.update({1: 0})
    assert family.account == FamilyMemory(peak_bytes=25 * MB, held_bytes=10 * MB)


def family_of(n: int, each_mb: int = 0, cap_mb: int = 200) -> tuple[ProcessFamily, World]:
    """Return a worker with so many children, each of which has allocated so much."""
    family, world = made(cap_mb)
    parents = {1: 0}
    for child in range(2, 2 + n):
        family.update(parents)
        assert family.fork(1)
        world.fork(1, child)
        parents[child] = 1
    for child in range(2, 2 + n):
        world.allocated[child] += each_mb * MB
    family.update(parents)
    return family, world


def test_children_that_were_refused_and_their_brothers_are_taken_to_need_the_same() -> None:
    family, world = family_of(8)
    assert family.allocate(2, 100 * MB)
    world.allocated[2] += 100 * MB
    family.update(dict.fromkeys(range(2, 10), 1) | {1: 0})
    for _ in range(7):  # a pool: the first to fail takes the work of all others
        family.refuse(3, 100 * MB)
    account = family.account
    assert 100 * MB <= account.peak_bytes < 102 * MB
    assert account.requested_bytes == 700 * MB


def test_one_child_that_asks_for_too_much_does_not_make_all_need_it() -> None:
    family, _ = family_of(8, each_mb=1)
    family.refuse(3, 300 * MB)
    assert family.account == FamilyMemory(peak_bytes=8 * MB, held_bytes=8 * MB, requested_bytes=300 * MB)
    family.refuse(4, 100 * MB)  # another that has failed is counted besides, or as the first
    assert family.account.requested_bytes == 600 * MB


def test_forks_that_are_refused_tell_what_they_would_have_copied() -> None:
    family, world = made()
    world.allocated[1] = 100 * MB
    assert not family.fork(1)
    assert family.account == FamilyMemory(peak_bytes=50 * MB, held_bytes=0, requested_bytes=50 * MB + LEAST_BYTES)
