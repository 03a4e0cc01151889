"""The processes of a run, told apart by who started whom."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tamis.engine.monitor.processes import ProcessTree
from tamis.memory import meter

SERVER = (
    "import subprocess, sys\n"
    "work = 'held = bytearray(30_000_000); print(1, flush=True); input()'\n"
    "worker = subprocess.Popen([sys.executable, '-c', work], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
    "worker.stdout.readline()\n"
    "print(worker.pid, flush=True)\n"
    "worker.wait()\n"
    "input()\n"
)


@pytest.fixture
def family() -> Iterator[tuple[int, int]]:
    """Start a server and its worker; return their pids."""
    with subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        worker = int(server.stdout.readline())
        yield server.pid, worker
        for pid in (worker, server.pid):
            if meter.is_alive(pid):
                os.kill(pid, signal.SIGKILL)


def test_supervisor_server_and_worker(family: tuple[int, int]) -> None:
    server, worker = family
    tree = ProcessTree(count_caller=True)
    rows = tree.sample({5: worker}, {5: (0, 31_000_000)})
    assert [(r["role"], r["pid"]) for r in rows] == [
        ("supervisor", os.getpid()),
        ("server", server),
        ("worker", worker),
    ]
    assert (rows[2]["worker"], rows[2]["segment"], rows[2]["pss_bytes"]) == (5, 0, 31_000_000)
    assert 30_000_000 < rows[2]["anon_bytes"] < 60_000_000
    assert rows[2]["peak_bytes"] >= rows[2]["anon_bytes"]
    assert (tree.n_processes, tree.pids) == (3, [os.getpid(), server, worker])
    assert tree.supervisor_bytes == rows[0]["pss_bytes"] > 0
    assert tree.server_bytes == rows[1]["pss_bytes"] > 0
    assert tree.cpu_s >= sum(r["cpu_s"] for r in rows) - 0.05


def test_the_dead_stay_in_the_sum_of_cpu_seconds(family: tuple[int, int]) -> None:
    _, worker = family
    tree = ProcessTree(count_caller=True)
    tree.sample({1: worker}, {})
    before = tree.cpu_s
    os.kill(worker, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while meter.cpu_s(worker) is not None and time.monotonic() < deadline:  # until it was waited for
        time.sleep(0.01)
    rows = tree.sample({1: worker}, {})
    assert [r["role"] for r in rows] == ["supervisor", "server"]
    assert tree.cpu_s >= before > 0


def test_without_workers_there_is_only_the_caller() -> None:
    tree = ProcessTree(count_caller=False)
    rows = tree.sample({}, {})
    assert [r["role"] for r in rows] == ["supervisor"]
    assert tree.server_bytes == 0
    assert tree.cpu_s < 5  # what the caller used before is not the run's


def test_the_highest_peak_of_a_process_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = ProcessTree(count_caller=True)
    peaks = iter([300, 900, 200])
    monkeypatch.setattr(meter, "status", lambda pid: {"VmHWM": next(peaks), "RssAnon": 1})
    assert [tree.sample({}, {})[0]["peak_bytes"] for _ in range(3)] == [300, 900, 900]


def test_shared_memory_is_read_now_and_then_and_whenever_workers_change(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    anon = [100, 150, 150, 150, 150, 150, 150, 150]

    def pss(pid: int) -> int:
        asked.append(pid)
        return 70

    monkeypatch.setattr(meter, "rss_anon", lambda pid: anon[0])
    monkeypatch.setattr(meter, "pss", pss)
    tree = ProcessTree(count_caller=True)
    found = []
    for _ in range(7):
        tree.sample({}, {})
        found.append(tree.supervisor_bytes)
        anon.pop(0)
    assert found == [70, 120, 120, 120, 70, 70, 70]
    assert len(asked) == 2
    tree.sample({1: 99_999_999}, {})  # a worker, gone before anybody could look at it
    assert len(asked) == 3
