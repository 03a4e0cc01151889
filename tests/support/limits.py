"""A test that takes too long loses the processes it waits for. A hook of pytest, for tests/conftest.py.

pytest-timeout raises an exception in the test, but what the test then leaves may wait for its process without end (`with Popen`, a pipe
that a grandchild holds). So, some seconds later, everything is killed that has come up below this process since the test began, with
all that is below it: whoever waits for it goes on, and the test fails.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest
from bounded import descendants, end_all, name_of

GRACE_S = 5.0


def limit_s(item: pytest.Item) -> float:
    """What pytest-timeout allows for this test; 0: no limit."""
    marker = item.get_closest_marker("timeout")
    told = marker.args[0] if marker is not None and marker.args else item.config.getini("timeout")
    return float(told or 0)


def began_s(pid: int) -> float:
    """When a process began, in seconds since the machine did; 0 for one that is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0.0


def end_since(at_s: float, item: pytest.Item) -> None:
    """Kill what is below this process and began later than that; the report of the test says so."""
    late = [pid for pid in descendants(os.getpid()) if began_s(pid) > at_s]
    if late:
        item.add_report_section("call", "killed", "\n".join(map(name_of, late)))
        end_all(late)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    allowed_s = limit_s(item)
    if not allowed_s:
        return (yield)
    timer = threading.Timer(allowed_s + GRACE_S, end_since, (time.clock_gettime(time.CLOCK_BOOTTIME), item))
    timer.daemon = True
    timer.start()
    try:
        return (yield)
    finally:
        timer.cancel()
