"""EndableProcess processes together with everything that they started, wherever it went.

Used by the guard, forking servers and warm processes.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Container
from typing import Protocol

from tamis.memory import meter, sampler

_ROUNDS = 50
_TRACKER = b"multiprocessing.resource_tracker"  # removes what its process leaves behind, and then ends by itself
_TRACKER_S = 0.5


def send(pid: int, number: int) -> None:
    """Send a signal to a process that may already be gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


class EndableProcess(Protocol):
    """A process as subprocess.Popen has it, and those of backends/ that are forked."""

    def wait(self, timeout: float | None = None) -> int: ...

    def kill(self) -> None: ...


def end_within(process: EndableProcess, seconds: float) -> None:
    """Wait so long for a process that ends by itself; one that does not is killed."""
    if isinstance(process, subprocess.Popen) and process.poll() is None:
        # Its own wait looks less and less often, up to every 50 ms; the kernel says at once that a process has ended.
        with contextlib.suppress(OSError), os.fdopen(os.pidfd_open(process.pid), "rb") as ended:
            poll = select.poll()  # a program of the user's may have more descriptors than `select` takes
            poll.register(ended, select.POLLIN)
            poll.poll(seconds * 1000)
            seconds = 0.0
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def end_tree(pid: int) -> None:
    """Kill a process and all below it.

    It is stopped first, so that it forks no more; trackers end by themselves.
    """
    send(pid, signal.SIGSTOP)
    killed: set[int] = set()
    for _ in range(_ROUNDS):  # who was killed has no more children, but may have had some just before
        children = [child for child in meter.descendants(pid) if child not in killed and not is_tracker(child)]
        for child in children:
            send(child, signal.SIGKILL)
        killed.update(children)
        if not children:
            break
    send(pid, signal.SIGKILL)


def end_strays(spared: Container[int]) -> None:
    """Kill adopted orphans: children of this process that it did not start, and all below them."""
    self_pid = os.getpid()
    for pid, parent in meter.descendants().items():
        if parent == self_pid and pid not in spared and meter.is_alive(pid) and not is_tracker(pid):
            end_tree(pid)


def end_descendants() -> None:
    """Kill everything below this process; trackers after a moment."""
    deadline_s = time.monotonic() + _TRACKER_S
    for _ in range(_ROUNDS):
        living = [pid for pid in meter.descendants() if meter.is_alive(pid)]
        is_late = time.monotonic() > deadline_s
        for pid in living:
            if is_late or not is_tracker(pid):
                send(pid, signal.SIGKILL)
        reap()
        if not living:
            return
        time.sleep(0.002 if len(living) > 1 or not is_tracker(living[0]) else 0.02)


def end_escaped() -> int:
    """Kill those whom processes of ours have started and that are not below us any more.

    Returns how many there were.
    """
    ours = {os.getpid(), *meter.descendants()}
    n = 0
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in ours and sampler.is_marked(int(name)):
            send(int(name), signal.SIGKILL)
            n += 1
    return n


def end_forks(spared: Container[int]) -> int:
    """Kill forks of this process that it did not register, and all below them; return how many.

    These are daemons of a stage, once their forking server, itself such a fork, is gone. For commands; a user's
    program may fork as it likes.
    """
    self_pid = os.getpid()
    program, n, n_empty = meter.command_line(self_pid), 0, 0
    for _ in range(_ROUNDS):
        forks = [
            pid
            for pid, parent in meter.descendants().items()
            if parent == self_pid and pid not in spared and meter.is_alive(pid) and meter.command_line(pid) == program
        ]
        for pid in forks:
            end_tree(pid)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        n += len(forks)
        n_empty = 0 if forks else n_empty + 1
        if n_empty == 3:  # a worker that is ending gives its own children to us only a moment later
            break
        time.sleep(0.005)
    return n


def is_tracker(pid: int) -> bool:
    return _TRACKER in (meter.command_line(pid) or b"")


def reap() -> None:
    """Reap dead child processes.

    Descendants that have died pass their own children to us only once they are waited for, if they were ours.
    """
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
