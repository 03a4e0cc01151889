"""The thread that counts: marks and their peaks, who is counted, and that it ends."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from tamis.memory import meter, sampler
from tamis.memory.pss_sum import PssSum
from tamis.memory.release import hygiene_env
from tamis.memory.sampler import Descendants, Mark, Sampler, StartedProcesses, marked

HOLD = "import sys; held = bytearray({}); print(1, flush=True); sys.stdin.read()"


class Told(PssSum):
    """Peaks as they are told."""

    def __init__(self, *peaks: int) -> None:
        super().__init__(dict)
        self._values = list(peaks)

    def sample(self, exact: bool = False) -> int:
        self.used_bytes = self._values.pop(0)
        return self.used_bytes


@pytest.fixture
def child() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(n_bytes: int, env: dict[str, str]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD.format(n_bytes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
        )
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield start
    for process in started:
        process.communicate()


def test_a_mark_knows_the_peak_of_its_time() -> None:
    watch = Sampler(True, Told(50, 300, 100, 120, 110))
    watch.sample()
    first = watch.open_mark()  # looks, too
    assert first.peak_bytes == 300  # what came before any mark is the first one's
    second = watch.open_mark()
    watch.sample()
    watch.close_mark(second)
    assert (first.peak_bytes, second.peak_bytes) == (300, 120)


def test_the_highest_since_it_was_last_read() -> None:
    mark = Mark()
    mark.note(5, 0)
    mark.note(3, 0)
    assert mark.pop_recent() == 5
    mark.note(2, 0)
    assert (mark.pop_recent(), mark.peak_bytes) == (2, 5)


def test_the_whole_tree_counts_where_the_caller_does(child: Callable[..., subprocess.Popen[bytes]]) -> None:
    with sampler.record_peak(count_caller=True) as mark:
        before = mark.peak_bytes
        child(50_000_000, dict(os.environ))
        child(30_000_000, hygiene_env(os.environ))
    assert before > 10_000_000
    assert mark.peak_bytes - before > 80_000_000
    assert mark.caller_bytes == 0


def test_only_what_was_started_by_us_counts_where_the_caller_does_not(
    child: Callable[..., subprocess.Popen[bytes]],
) -> None:
    with sampler.record_peak(count_caller=False) as mark:
        before = mark.peak_bytes  # of processes that other tests share
        child(50_000_000, dict(os.environ))
        child(30_000_000, hygiene_env(os.environ))
    assert 30_000_000 < mark.peak_bytes - before < 50_000_000
    assert mark.caller_bytes > 10_000_000


def test_a_process_may_become_ours_after_it_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    ours: set[int] = set()
    monkeypatch.setattr(sampler.meter, "descendants", lambda: {7: os.getpid(), 8: 7, 9: os.getpid()})
    monkeypatch.setattr(sampler, "is_marked", lambda pid: pid in ours)
    started = StartedProcesses(lambda: now[0])
    assert started() == {}
    ours.add(7)
    now[0] = 0.5
    assert started() == {7: os.getpid(), 8: 7}
    now[0] = 2.0
    started()
    ours.add(9)  # too late: it is somebody else's
    assert started() == {7: os.getpid(), 8: 7}


def test_the_tree_is_walked_when_a_process_has_come_or_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    now, last_pid, alive, walks = [0.0], [50], {7, 8}, []
    monkeypatch.setattr(sampler.meter, "last_pid", lambda: last_pid[0])
    monkeypatch.setattr(sampler.meter, "exists", lambda pid: pid in alive)

    def walk() -> dict[int, int]:
        walks.append(now[0])
        return dict.fromkeys(sorted(alive), 1)

    monkeypatch.setattr(sampler.meter, "descendants", walk)
    tree = Descendants(lambda: now[0])
    assert tree() == tree() == {7: 1, 8: 1}
    assert len(walks) == 1
    last_pid[0] = 51
    alive.add(51)
    assert tree() == {7: 1, 8: 1, 51: 1}
    alive.remove(8)
    assert tree() == {7: 1, 51: 1}
    now[0] = 1.0
    tree()
    assert len(walks) == 4


def test_the_last_process_is_known_at_once(child: Callable[..., subprocess.Popen[bytes]]) -> None:
    before = meter.last_pid()
    pid = child(1000, dict(os.environ)).pid
    assert before is None or meter.last_pid() != before
    assert meter.exists(pid)
    assert pid in Descendants()()


def test_the_environment_of_our_processes_names_us_whatever_it_named_before() -> None:
    mine = marked({"A": "1", sampler.MARK_VARIABLE: "another"})
    assert mine["A"] == "1"
    assert mine[sampler.MARK_VARIABLE] not in ("", "another")
    assert hygiene_env({})[sampler.MARK_VARIABLE] == mine[sampler.MARK_VARIABLE]


def test_the_thread_ends_with_its_last_user() -> None:
    def running() -> int:
        return sum(t.name == "tamis-sampler" for t in threading.enumerate())

    before = running()
    with sampler.record_peak(count_caller=False), sampler.record_peak(count_caller=False):
        assert running() == before + 1
    assert running() == before


def test_what_is_about_to_begin_ends_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tamis.memory.pace.STILL_S", 1000.0)
    monkeypatch.setattr("tamis.memory.pace._LONGER", 1e6)  # from one look to the next
    looked = threading.Semaphore(0)
    watch = Sampler(True, Told(*[100] * 1000))
    watch.add_listener(looked.release)
    watch.limit(1 << 60)
    watch.start()
    try:
        while looked.acquire(timeout=2.0):  # until it rests
            pass
        watch.expect_change()
        assert looked.acquire(timeout=60.0)
    finally:
        watch.stop()


def test_listeners_hear_of_every_look() -> None:
    watch = Sampler(True, Told(1, 2, 3))
    heard: list[int] = []

    def listen() -> None:
        heard.append(watch.used_bytes)

    watch.add_listener(listen)
    watch.sample()
    watch.sample()
    watch.remove_listener(listen)
    watch.sample()
    assert heard == [1, 2]
