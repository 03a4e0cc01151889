"""Processes next to a run that count in its budget, such as the dashboard, registered by their starter."""

from __future__ import annotations

import os

from tamis.memory import meter

_RESERVED: dict[int, int] = {}  # pid -> bytes it may use
_TITLES: dict[int, str] = {}


def join(pid: int, reserved_bytes: int, title: str = "dashboard") -> None:
    """Count a process. `title`: what it is, in the run database."""
    _RESERVED[pid] = reserved_bytes
    _TITLES[pid] = title


def leave(pid: int) -> None:
    _RESERVED.pop(pid, None)
    _TITLES.pop(pid, None)


def title_of(pid: int) -> str:
    return _TITLES.get(pid, "")


def pids() -> list[int]:
    return list(_RESERVED)


def reserved_bytes() -> int:
    """Return the bytes that the budget must leave to the counted processes.

    Per process: the reservation, or its use if that is larger.
    """
    return sum(max(reserved, meter.pss(pid) or 0) for pid, reserved in _RESERVED.items())


def budget_left(memory: str | int | None) -> int:
    """Return the budget for this `memory` setting (budget.py) less what must be left to counted processes."""
    from tamis.memory.budget import find_budget

    return find_budget(memory, os.environ).bytes - reserved_bytes()


def pss_bytes() -> int:
    """Return the bytes that the counted processes use now."""
    return sum(meter.pss(pid) or 0 for pid in _RESERVED)
