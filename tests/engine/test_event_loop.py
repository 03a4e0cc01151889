"""How often the loop looks; scratch that nobody needs is removed without it waiting, before names are used again."""

from __future__ import annotations

import os
import queue
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tamis.engine.run import event_loop
from tamis.engine.run.event_loop import RESTING_TICK_S, TICK_S, Discarder, EventLoop


@pytest.mark.parametrize("is_remote", [False, True])
def test_the_loop_rests_while_nothing_happens(monkeypatch: pytest.MonkeyPatch, is_remote: bool) -> None:
    now, node, waits = [100.0], SimpleNamespace(used_bytes=50_000_000), []

    def poll(timeout_s: float) -> list[Any]:
        waits.append(timeout_s)
        now[0] += timeout_s
        return []

    def steps(n: int) -> set[float]:
        waits.clear()
        for _ in range(n):
            loop.run_once()
        return set(waits)

    monkeypatch.setattr(event_loop, "time", SimpleNamespace(monotonic=lambda: now[0]))
    workers: Any = SimpleNamespace(is_remote=is_remote, poll=poll, measure=lambda: {0: (node.used_bytes, {})})
    pool = SimpleNamespace(nodes={0: node}, workers={})
    supervisor: Any = SimpleNamespace(handle=lambda event, now_s: [], pool=pool)
    committer: Any = SimpleNamespace(results=queue.Queue())
    monitor: Any = SimpleNamespace()
    loop = EventLoop(supervisor, workers, committer, lambda kind, data: None, monitor, lambda up: None)
    assert steps(20) == {TICK_S}
    steps(20)
    assert steps(3) == {TICK_S if is_remote else RESTING_TICK_S}
    node.used_bytes += 1_000_000
    loop.run_once()
    assert steps(20) == {TICK_S}


def test_a_disk_that_hangs_blocks_no_caller_until_names_may_be_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, own = threading.Event(), os.unlink

    def slow(path: str) -> None:
        hangs.wait(30)
        own(path)

    monkeypatch.setattr("tamis.engine.run.event_loop.os.unlink", slow)
    names = [str(tmp_path / f"f{i}.1") for i in range(20)]
    for name in names:
        Path(name).write_bytes(b"x")
    discarder = Discarder()
    for name in [str(tmp_path / "was never there"), *names]:
        discarder.add(name)
    assert all(map(os.path.exists, names))
    hangs.set()
    discarder.close()
    assert not any(map(os.path.exists, names))
    Path(names[0]).write_bytes(b"y")
    discarder.add(names[0])  # it begins again
    discarder.close()
    discarder.close()
    assert not os.path.exists(names[0])
