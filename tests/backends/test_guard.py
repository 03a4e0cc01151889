"""The guard against a real process behind a real gate: what it may map, start and leave behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tamis.backends.guard import Notice, WorkerGuard
from tamis.memory import meter, shared_memory
from tamis.memory.sampler import Sampler
from tests.support.behind_gate import BehindGate

MB = 1_000_000
SETUP = "import mmap, os, signal, subprocess, sys, time"
NO_MEMORY = "OSError: [Errno 12] Cannot allocate memory"


class Watch(Sampler):
    """A sampler that looks only when told, and may be told what to see."""

    def __init__(self) -> None:
        super().__init__(count_caller=False)
        self.told: dict[int, int] | None = None
        self.hurried = False

    @property
    def uses(self) -> dict[int, int]:
        return dict(super().uses) if self.told is None else self.told

    @property
    def used_bytes(self) -> int:
        return super().used_bytes if self.told is None else sum(self.told.values())

    def sample_faster(self, wanted: bool) -> None:
        self.hurried = wanted


class Guarded:
    def __init__(self, process: BehindGate, cap_mb: int) -> None:
        self.process, self.watch, self.woken = process, Watch(), 0
        process.do(SETUP)
        self.guard = WorkerGuard(self.watch, self._wake)
        self.guard.attach(process.gate)
        self.guard.adopt(7, process.pid, meter.data_bytes(process.pid) or 0)
        self.grant(cap_mb)

    def grant(self, cap_mb: int, ceiling_mb: int = 10_000) -> None:
        self.guard.grant(7, cap_mb * MB, ceiling_mb * MB)

    def do(self, line: str) -> str:
        return self.process.do(line)

    def _wake(self) -> None:
        self.woken += 1


@pytest.fixture
def guarded() -> Iterator[Callable[[int], Guarded]]:
    made: list[Guarded] = []

    def start(cap_mb: int) -> Guarded:
        process = BehindGate()
        if process.gate is None:
            pytest.skip("this kernel or container allows no seccomp notifications")
        made.append(Guarded(process, cap_mb))
        return made[-1]

    yield start
    for each in made:
        each.guard.close()
        with each.process:
            pass


def test_shared_memory_counts_and_is_given_back(guarded: Callable[[int], Guarded]) -> None:
    g = guarded(50)
    assert g.do(f"held = mmap.mmap(-1, {30 * MB}); result = len(held)") == str(30 * MB)
    assert g.do(f"mmap.mmap(-1, {30 * MB})") == NO_MEMORY
    assert g.do(f"bytearray({30 * MB})").startswith("MemoryError")  # what is mapped cannot be allocated
    assert g.guard.take_notices() == [Notice("refused", 7, 30 * MB)]
    account = g.guard.account(7)
    assert 30 * MB <= account.held_bytes < 31 * MB
    assert account.requested_bytes >= 30 * MB
    g.watch.sample()
    g.do("held.close()")
    g.watch.sample()
    assert g.do(f"held = bytearray({40 * MB}); result = len(held)") == str(40 * MB)
    assert g.do(f"mmap.mmap(-1, {30 * MB})") == NO_MEMORY
    assert not g.guard.is_starved(7)


def test_mapped_files_count_and_libraries_do_not(guarded: Callable[[int], Guarded], tmp_path: Path) -> None:
    data, library = tmp_path / "data", tmp_path / "library.so.1"
    for path in (data, library):
        path.touch()
        os.truncate(path, 60 * MB)
    g = guarded(50)
    opened = "with open({!r}, 'rb') as f: result = len(mmap.mmap(f.fileno(), 0, {}, mmap.PROT_READ))"
    assert g.do(opened.format(str(data), "mmap.MAP_SHARED")) == NO_MEMORY
    assert g.do(opened.format(str(data), "mmap.MAP_PRIVATE")) == NO_MEMORY
    assert g.do(opened.format(str(library), "mmap.MAP_PRIVATE")) == str(60 * MB)
    os.truncate(data, 40 * MB)
    assert g.do(opened.format(str(data), "mmap.MAP_SHARED")) == str(40 * MB)


def test_before_its_first_work_a_worker_may_map(guarded: Callable[[int], Guarded]) -> None:
    g = guarded(0)
    assert g.do(f"result = len(mmap.mmap(-1, {30 * MB}))") == str(30 * MB)


CHILDREN = (
    "pids = []\\n"
    "for i in range(4):\\n"
    "    pid = os.fork()\\n"
    "    if not pid:\\n"
    "        try: held = bytearray({})\\n"
    "        except MemoryError: os._exit(1)\\n"
    "        time.sleep(0.4)\\n"
    "        os._exit(0)\\n"
    "    pids.append(pid)\\n"
    "result = sum(os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]) for p in pids)"
)


def test_children_share_one_cap(guarded: Callable[[int], Guarded]) -> None:
    g = guarded(200)
    assert g.do(CHILDREN.format(40 * MB)) == "0"  # the last one gets what the others do not need
    assert g.watch.hurried
    assert g.do(CHILDREN.format(90 * MB)) == "2"
    g.watch.sample()
    g.watch.sample()
    g.watch.sample()
    assert not g.watch.hurried
    assert g.do(f"held = bytearray({190 * MB}); result = len(held)") == str(190 * MB)


def test_a_child_that_lacks_memory_explains_the_failure_of_its_parent(guarded: Callable[[int], Guarded]) -> None:
    g = guarded(100)
    code = f"held = bytearray({120 * MB})"
    line = f"result = subprocess.run([sys.executable, '-c', {code!r}], stderr=subprocess.DEVNULL).returncode"
    assert g.do(line) == "1"
    assert g.guard.is_starved(7)
    assert 120 * MB <= g.guard.account(7).requested_bytes < 150 * MB
    g.grant(400)
    assert g.do(line) == "0"
    assert not g.guard.is_starved(7)


def test_who_is_over_its_ceiling_is_stopped_and_reported(guarded: Callable[[int], Guarded]) -> None:
    g = guarded(100)
    g.grant(100, ceiling_mb=60)
    g.do(f"held = b'x' * {70 * MB}")
    g.watch.sample()
    assert g.guard.stopped()[7] > 70 * MB
    assert g.woken == 1
    deadline = time.monotonic() + 10
    while _state(g.process.pid) != "T" and time.monotonic() < deadline:
        time.sleep(0.001)
    assert _state(g.process.pid) == "T"


def test_who_was_stopped_between_two_units_continues_if_the_next_cap_is_larger(
    guarded: Callable[[int], Guarded],
) -> None:
    g = guarded(100)
    g.grant(100, ceiling_mb=60)
    g.do(f"held = b'x' * {70 * MB}")
    g.watch.sample()
    assert g.guard.stopped()
    g.grant(200, ceiling_mb=220)
    assert not g.guard.stopped()
    assert g.do("result = 5") == "5"


def test_a_false_alarm_lets_it_continue(guarded: Callable[[int], Guarded]) -> None:
    g = guarded(100)
    g.grant(100, ceiling_mb=60)
    g.watch.sample()
    g.watch.told = {g.process.pid: 500 * MB}
    g.guard._after_sample()
    assert (g.guard.stopped(), g.woken) == ({}, 0)
    assert g.do("result = 5") == "5"


DAEMON = (
    "if os.fork() == 0:\\n"
    "    os.setsid()\\n"
    "    if os.fork() == 0:\\n"
    "        time.sleep(600)\\n"
    "    os._exit(0)\\n"
    "time.sleep(0.3)"
)


def test_an_ended_worker_takes_its_daemons_and_its_shared_memory_along(guarded: Callable[[int], Guarded]) -> None:
    g = guarded(100)
    g.do(DAEMON)
    below = [pid for pid in meter.descendants(g.process.pid) if meter.is_alive(pid)]
    assert len(below) == 1
    name = f"tamis-test-{g.process.pid}"
    g.do(
        f"fd = os.open('/dev/shm/{name}', os.O_CREAT | os.O_RDWR); os.ftruncate(fd, {2 * MB}); held = mmap.mmap(fd, 0)"
    )
    path = os.path.join(shared_memory.SHARED_FOLDER, name)
    assert os.path.exists(path)
    assert g.guard.end(7)
    g.process.process.wait()
    assert g.guard.forget(7, -signal.SIGKILL) == [path]
    assert not os.path.exists(path)
    deadline = time.monotonic() + 10
    while meter.is_alive(below[0]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not meter.is_alive(below[0])


def test_a_worker_that_ends_in_peace_leaves_what_it_likes(guarded: Callable[[int], Guarded]) -> None:
    g = guarded(100)
    path = os.path.join(shared_memory.SHARED_FOLDER, f"tamis-test-{g.process.pid}")
    g.do(f"fd = os.open({path!r}, os.O_CREAT | os.O_RDWR); os.ftruncate(fd, {2 * MB}); held = mmap.mmap(fd, 0)")
    try:
        assert g.guard.forget(7, 0) == []
        assert os.path.exists(path)
    finally:
        os.unlink(path)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_who_looks_seldom_is_woken_when_memory_moves(guarded: Callable[[int], Guarded]) -> None:
    each = guarded(100)
    for told, expected in ((50 * MB, 0), (60 * MB, 0), (60 * MB, 0), (61 * MB, 1), (61 * MB, 1), (40 * MB, 2)):
        each.watch.told = {each.process.pid: told}
        each.watch.sample()
        assert each.woken == expected
        each.guard.wakes_on_moves |= told == 60 * MB
