"""Ending processes with everything they started."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tamis.memory import kill_tree, meter
from tamis.memory.release import hygiene_env
from tests.support.forks import fork

# A parent with a child, a grandchild, and a daemon that left them; it tells their pids.
FAMILY = """
import os, signal, sys, time
def told(*more):
    os.write(1, b"%d\\n" % os.getpid())
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: told()
    os._exit(0)
if os.fork() == 0:
    if os.fork() == 0: told()
    told()
told()
"""


@pytest.fixture
def family() -> Iterator[Callable[[], tuple[subprocess.Popen[bytes], list[int]]]]:
    pids: list[int] = []

    def start() -> tuple[subprocess.Popen[bytes], list[int]]:
        process = subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE, env=hygiene_env(os.environ))
        assert process.stdout is not None
        found = [int(process.stdout.readline()) for _ in range(4)]
        pids.extend(found)
        process.stdout.close()
        return process, found

    yield start
    for pid in pids:
        kill_tree.send(pid, signal.SIGKILL)


def all_gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + 10
    while any(meter.is_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.005)
    return not any(meter.is_alive(pid) for pid in pids)


def test_a_tree_ends_and_who_left_it_is_found_by_its_mark(
    family: Callable[[], tuple[subprocess.Popen[bytes], list[int]]],
) -> None:
    process, pids = family()
    below = [process.pid, *meter.descendants(process.pid)]
    daemon = next(pid for pid in pids if pid not in below)
    kill_tree.end_tree(process.pid)
    process.wait()
    assert all_gone([pid for pid in pids if pid != daemon])
    assert meter.is_alive(daemon)
    assert kill_tree.end_escaped() == 1
    assert all_gone([daemon])


def test_strays_are_processes_of_no_known_parent(
    family: Callable[[], tuple[subprocess.Popen[bytes], list[int]]],
) -> None:
    others = set(meter.descendants())  # of this pytest: a server that other tests use
    kept, stray = family(), family()
    daemons = [
        next(p for p in pids if p not in (each.pid, *meter.descendants(each.pid))) for each, pids in (kept, stray)
    ]
    kill_tree.end_strays({kept[0].pid, *others})
    stray[0].wait()
    assert not meter.is_alive(stray[0].pid)
    assert meter.is_alive(kept[0].pid)
    kill_tree.end_tree(kept[0].pid)
    kept[0].wait()
    assert all_gone([pid for pid in kept[1] + stray[1] if pid not in daemons])
    assert kill_tree.end_escaped() == 2


def test_trackers_are_reported_by_their_command_line() -> None:
    code = "from multiprocessing.resource_tracker import main; import time; print(1, flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert kill_tree.is_tracker(process.pid)
        process.kill()
    assert not kill_tree.is_tracker(os.getpid())
    assert not kill_tree.is_tracker(2**22)


def test_a_signal_to_no_process_is_no_error() -> None:
    kill_tree.send(2**22, signal.SIGKILL)


def test_unknown_forks_of_this_program_are_ended() -> None:
    pids = []
    for _ in range(2):
        pid = fork()
        if not pid:
            time.sleep(600)
            os._exit(0)
        pids.append(pid)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as other:
        while meter.command_line(other.pid) == meter.command_line(os.getpid()):  # it has not yet become another program
            time.sleep(0.005)
        assert kill_tree.end_forks({pids[0]}) == 1
        assert [meter.is_alive(pid) for pid in (*pids, other.pid)] == [True, False, True]
        other.kill()
    os.kill(pids[0], signal.SIGKILL)
    os.waitpid(pids[0], 0)


def no_descriptor(*_: int) -> int:
    raise OSError("no such call")


def high_descriptor(pid: int, flags: int = 0) -> int:
    """As in a program that has more than a thousand files open."""
    low = PIDFD_OPEN(pid, flags)
    try:
        return fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 1100)
    finally:
        os.close(low)


PIDFD_OPEN = os.pidfd_open


@pytest.mark.parametrize("pidfd_open", [PIDFD_OPEN, high_descriptor, no_descriptor])
def test_end_within_waits_for_an_end_and_kills_what_does_not_end(
    pidfd_open: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    monkeypatch.setattr(os, "pidfd_open", pidfd_open)
    try:
        ends, stays = (subprocess.Popen(["sleep", seconds]) for seconds in ("0.1", "60"))
        kill_tree.end_within(ends, 30.0)
        kill_tree.end_within(stays, 0.1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (ends.returncode, stays.returncode) == (0, -signal.SIGKILL)
