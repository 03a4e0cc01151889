"""A test that takes too long loses the processes it waits for. A hook of pytest, for tests/conftest.py.

pytest-timeout raises an exception in the test, but what the test then leaves may wait for its process without end
(`with Popen`, a pipe that a grandchild holds). So, some seconds later, everything is killed that has come up below this
process since the test began, with all that is below it: whoever waits for it goes on, and the test fails.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from tests.support.bounded import descendants, end_all, name_of

GRACE_S = 5.0
MAX_EXAMPLES = 100


def examples(n: int) -> int:
    """Return how many examples a property that deserves `n` gets: `HYPOTHESIS=new` tries all, the default suite 100."""
    return n if os.environ.get("HYPOTHESIS") == "new" else min(n, MAX_EXAMPLES)


def limit_s(item: pytest.Item) -> float:
    """Return what pytest-timeout allows for this test; 0: no limit."""
    marker = item.get_closest_marker("timeout")
    told = marker.args[0] if marker is not None and marker.args else item.config.getini("timeout")
    return float(told or 0)


def present() -> frozenset[str]:
    """Return the processes that exist now.

    A clock would not do: not every sandbox says when a process began on the clock it lets us read.
    """
    return frozenset(os.listdir("/proc"))


def end_newer(before: frozenset[str], item: pytest.Item) -> None:
    """Kill what is below this process and was not there before; the report of the test says so."""
    late = [pid for pid in descendants(os.getpid()) if str(pid) not in before]
    if late:
        item.add_report_section("call", "killed", "\n".join(map(name_of, late)))
        end_all(late)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    allowed_s = limit_s(item)
    if not allowed_s:
        return (yield)
    timer = threading.Timer(allowed_s + GRACE_S, end_newer, (present(), item))
    timer.daemon = True
    timer.start()
    try:
        return (yield)
    finally:
        timer.cancel()
