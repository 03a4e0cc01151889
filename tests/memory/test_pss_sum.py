"""Counting several processes: exact when asked, moved by resident memory in between, no peak missed."""

from __future__ import annotations

from dataclasses import dataclass, field

from tamis.memory.meter import Pid
from tamis.memory.pace import EXACT_S, IDLE_S
from tamis.memory.pss_sum import PssSum
from tests.support.fake_meter import FakeMeter, FakeProcess

MB = 1_000_000


@dataclass
class Shared(FakeMeter):
    """PSS is told, not computed; how often it was asked for is counted."""

    told: dict[int, int] = field(default_factory=dict)
    n_asked: int = 0
    hidden: bool = False

    def pss(self, pid: Pid = "self") -> int | None:
        self.n_asked += 1
        return None if self.hidden else self.told.get(int(pid))


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def made(meter: FakeMeter) -> tuple[PssSum, Clock]:
    clock = Clock()
    return PssSum(lambda: {pid: process.parent for pid, process in meter.processes.items()}, meter, clock, clock), clock


def test_the_sum_is_that_of_pss_and_each_is_reported() -> None:
    meter = Shared(
        {1: FakeProcess(50 * MB, 40 * MB), 2: FakeProcess(20 * MB, 40 * MB, parent=1)}, told={1: 70 * MB, 2: 40 * MB}
    )
    tally, _ = made(meter)
    assert tally.sample() == 110 * MB
    assert (tally.used_bytes, tally.uses, tally.parents) == (110 * MB, {1: 70 * MB, 2: 40 * MB}, {1: 0, 2: 1})


def test_anonymous_memory_moves_the_sum_without_asking_for_pss() -> None:
    meter = Shared({1: FakeProcess(50 * MB, 40 * MB)}, told={1: 70 * MB})
    tally, clock = made(meter)
    tally.sample()
    meter.processes[1].anon_bytes = 80 * MB
    clock.now_s += EXACT_S / 2
    assert tally.sample() == 100 * MB
    assert meter.n_asked == 1
    clock.now_s += EXACT_S / 2
    meter.told[1] = 101 * MB
    assert tally.sample() == 101 * MB
    assert meter.n_asked == 2


def test_processes_that_touch_nothing_are_asked_seldom() -> None:
    meter = Shared({1: FakeProcess(50 * MB, 40 * MB)}, told={1: 70 * MB})
    tally, clock = made(meter)
    tally.sample()
    clock.now_s += EXACT_S
    tally.sample()
    assert meter.n_asked == 1
    clock.now_s += IDLE_S - EXACT_S
    tally.sample()
    assert meter.n_asked == 2


def test_pages_that_are_copied_are_seen_though_no_memory_is_taken() -> None:
    meter = Shared({1: FakeProcess(50 * MB, 40 * MB)}, told={1: 45 * MB})
    tally, clock = made(meter)
    tally.sample()
    meter.processes[1].n_faults, meter.told[1] = 1000, 49 * MB  # of its forking server
    clock.now_s += EXACT_S
    assert tally.sample() == 49 * MB


def test_a_new_process_makes_all_be_read_anew_because_it_shares_with_them() -> None:
    meter = Shared({1: FakeProcess(50 * MB, 40 * MB)}, told={1: 90 * MB})
    tally, clock = made(meter)
    tally.sample()
    meter.processes[2] = FakeProcess(50 * MB, 40 * MB, parent=1)
    meter.told |= {1: 45 * MB, 2: 46 * MB}
    clock.now_s += 0.02
    assert tally.sample() == 91 * MB


def test_what_cannot_be_read_yet_is_a_guess_and_no_peak() -> None:
    class Slow(Shared):
        def pss(self, pid: Pid = "self") -> int | None:
            clock.now_s += 0.2  # each question takes this long
            return super().pss(pid)

    meter = Slow({1: FakeProcess(50 * MB, 40 * MB)}, told={1: 90 * MB})
    tally, clock = made(meter)
    assert tally.sample() == 90 * MB
    meter.processes[2] = FakeProcess(50 * MB, 40 * MB, parent=1)
    meter.told |= {1: 45 * MB, 2: 46 * MB}
    clock.now_s += 0.02
    assert tally.sample() == 0
    assert tally.uses == {1: 90 * MB, 2: 46 * MB}  # rather too much than too little
    assert tally.sample(exact=True) == 91 * MB
    meter.processes[3] = FakeProcess(10 * MB, parent=1)
    meter.told |= {3: 10 * MB}
    assert tally.sample() == 0
    clock.now_s += 20.0
    assert tally.sample() == 101 * MB


def test_new_file_pages_are_read_when_they_are_many() -> None:
    meter = Shared({1: FakeProcess(50 * MB, 40 * MB)}, told={1: 70 * MB})
    tally, clock = made(meter)
    tally.sample()
    clock.now_s += 0.02
    meter.processes[1].shared_bytes += MB // 2
    assert tally.sample() == 70 * MB + MB // 4  # half of each of its file pages is its own
    assert tally.uses == {1: 70 * MB + MB // 2}  # which of the new ones nobody knows
    assert meter.n_asked == 1
    meter.processes[1].shared_bytes += 20 * MB
    meter.told[1] = 80 * MB
    assert tally.sample() == 80 * MB
    assert meter.n_asked == 2


def test_a_peak_between_two_looks_is_known_from_the_kernels_counter() -> None:
    meter = Shared({1: FakeProcess(50 * MB, 40 * MB), 2: FakeProcess(10 * MB)}, told={1: 70 * MB, 2: 10 * MB})
    tally, clock = made(meter)
    tally.sample()
    clock.now_s += 0.02
    meter.processes[1].anon_bytes, meter.processes[1].peak_bytes = 30 * MB, 115 * MB
    assert tally.sample() == 80 * MB + 25 * MB
    assert tally.used_bytes == 60 * MB
    clock.now_s += 0.02
    meter.processes[1].anon_bytes = 20 * MB  # it falls again, but was no higher than is known already
    assert tally.sample() == 50 * MB


def test_a_counter_that_was_reset_counts_from_there() -> None:
    meter = Shared({1: FakeProcess(100 * MB)}, told={1: 100 * MB})
    tally, _clock = made(meter)
    tally.sample()
    meter.processes[1].anon_bytes, meter.processes[1].peak_bytes = 20 * MB, 0  # a partition ends, the next begins
    tally.sample()
    meter.processes[1].anon_bytes = 30 * MB
    tally.sample()
    meter.processes[1].anon_bytes, meter.processes[1].peak_bytes = 10 * MB, 60 * MB
    assert tally.sample() == 60 * MB


def test_a_process_that_ends_while_it_is_read_counts_nothing() -> None:
    class Ending(Shared):
        def pss(self, pid: Pid = "self") -> int | None:
            if pid == 2:
                del self.processes[2]
                return None
            return super().pss(pid)

    meter = Ending({1: FakeProcess(50 * MB, 40 * MB), 2: FakeProcess(30 * MB)}, told={1: 70 * MB})
    tally, _ = made(meter)
    assert tally.sample() == 70 * MB


def test_the_gone_count_nothing_and_the_hidden_all_they_hold() -> None:
    meter = Shared({1: FakeProcess(50 * MB, 40 * MB), 2: FakeProcess(10 * MB)}, told={1: 70 * MB, 2: 10 * MB})
    tally, clock = made(meter)
    tally.sample()
    del meter.processes[2]
    meter.hidden = True
    clock.now_s += 0.02
    assert tally.sample() == 90 * MB
    assert tally.uses == {1: 90 * MB}
