"""Restores the scheduling policy after encoders that switch the process to real-time.

SVT-AV1, where it may (root, and so in most containers), sets this process to SCHED_FIFO with the highest priority.
Child processes inherit it, other processes on the machine starve, and the kernel can wait for ever for a task that it
never schedules.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager

_REAL_TIME = (os.SCHED_FIFO, os.SCHED_RR)


@contextmanager
def as_before() -> Iterator[None]:
    """Restore the caller's priority for all threads of this process after an encoder was opened."""
    policy, priority = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        yield
    finally:
        if policy & ~os.SCHED_RESET_ON_FORK not in _REAL_TIME:
            for task in os.listdir("/proc/self/task"):
                with contextlib.suppress(OSError):  # a thread that has just ended
                    if os.sched_getscheduler(int(task)) & ~os.SCHED_RESET_ON_FORK in _REAL_TIME:
                        os.sched_setscheduler(int(task), policy, priority)
