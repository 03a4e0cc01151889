"""Turns on a device: one process at a time, and a holder that dies frees it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tamis.memory.device_limits import GpuLock
from tests.support.forks import fork


def _holder(folder: str, begun: int, go: int) -> int:
    """Fork a process that takes the lock, reports it, and keeps it until it is told to continue."""
    pid = fork()
    if not pid:
        try:
            with GpuLock(folder, "0").acquire():
                os.write(begun, b"h")
                os.read(go, 1)
                os.write(begun, b"e")
        finally:
            os._exit(0)
    return pid


def test_a_turn_begins_when_the_last_one_has_ended(tmp_path: Path) -> None:
    begun, say = os.pipe()
    hear, go = os.pipe()
    first = _holder(str(tmp_path), say, hear)
    assert os.read(begun, 1) == b"h"
    second = _holder(str(tmp_path), say, hear)
    time.sleep(0.1)
    os.write(go, b"gg")
    told = b""
    while len(told) < 3:
        told += os.read(begun, 1)
    assert told == b"ehe"
    for pid in (first, second):
        os.waitpid(pid, 0)


def test_a_holder_that_dies_frees_the_device(tmp_path: Path) -> None:
    begun, say = os.pipe()
    hear, _go = os.pipe()
    pid = _holder(str(tmp_path), say, hear)
    assert os.read(begun, 1) == b"h"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with GpuLock(str(tmp_path), "0").acquire():
        pass


def test_other_devices_are_not_waited_for(tmp_path: Path) -> None:
    with GpuLock(str(tmp_path), "0").acquire(), GpuLock(str(tmp_path), "GPU-1/x").acquire():
        assert sorted(p.suffix for p in tmp_path.iterdir()) == [".lock", ".lock"]


def test_without_a_folder_no_process_waits() -> None:
    with GpuLock("", "0").acquire(), GpuLock("/nowhere/at/all", "0").acquire():
        pass
