"""Run a command so that it always ends, and nothing that it started is left when it has.

    python tests/support/bounded.py --minutes 40 python -m pytest

`make test` runs pytest through this. The command gets a session of its own and this process adopts what it leaves
behind (a daemon that forked twice, too). Output passes through a pipe of ours, so nobody who waits for the end of our
output waits for a daemon that has inherited it. The exit code is the command's; 124 when the time was up.

"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
PR_CAPBSET_DROP, CAP_SYS_NICE = 24, 23
TIME_IS_UP = 124


def adopt_orphans() -> None:
    """From now on, processes whose parents end become children of this one (Linux)."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def stay_ordinary() -> None:
    """Keep processes started from now on from becoming real-time, even as root.

    An encoder did: at the highest priority on all cores it left nobody else a turn, and no signal ended it any more.
    """
    ctypes.CDLL(None, use_errno=True).prctl(PR_CAPBSET_DROP, CAP_SYS_NICE, 0, 0, 0)


def children_of() -> dict[int, list[int]]:
    """Who has which children now, by process id."""
    family: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                after_name = (entry / "stat").read_text().rpartition(")")[2].split()
            except (OSError, ValueError):
                continue  # it ended while we looked
            family.setdefault(int(after_name[1]), []).append(int(entry.name))
    return family


def descendants(pid: int) -> list[int]:
    """Everything below `pid`, parents before their children."""
    family = children_of()
    found: list[int] = []
    waiting = list(family.get(pid, ()))
    while waiting:
        child = waiting.pop(0)
        found.append(child)
        waiting += family.get(child, ())
    return found


def name_of(pid: int) -> str:
    """Return the command line of `pid`, for messages."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "(ended)"
    return b" ".join(words).decode(errors="replace").strip()[:160] or "(zombie)"


def end_all(pids: Sequence[int]) -> None:
    """SIGKILL for each of `pids` that is still there."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def reap() -> Iterator[tuple[int, int]]:
    """Collect what has ended among our children, adopted ones too, without waiting: pairs of pid and exit code."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, os.waitstatus_to_exitcode(status)


def wait_for(pid: int, seconds: float) -> int | None:
    """Return the exit code of our child `pid`, or None when the time is up; reap all others meanwhile."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for ended, code in reap():
            if ended == pid:
                return code
        time.sleep(0.02)
    return None


def clear_up(seconds: float = 10.0) -> list[str]:
    """End everything below this process and return what that was; gives up after `seconds`."""
    ended: dict[int, str] = {}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for _ in reap():
            pass
        below = descendants(os.getpid())
        if not below:
            break
        ended.update({pid: name_of(pid) for pid in below if pid not in ended})
        end_all(below)
        time.sleep(0.05)
    return list(ended.values())


def forward(source: int, target: int) -> threading.Thread:
    """Copy bytes from one descriptor to another in the background until the source ends."""

    def copy() -> None:
        while chunk := os.read(source, 65536):
            view = memoryview(chunk)
            while view:
                view = view[os.write(target, view) :]

    thread = threading.Thread(target=copy, daemon=True)
    thread.start()
    return thread


def run(command: Sequence[str], seconds: float) -> int:
    """Run `command` for at most `seconds`, end what it left and return its exit code."""
    adopt_orphans()
    stay_ordinary()
    through_pipe = not sys.stdout.isatty()
    reading, writing = os.pipe() if through_pipe else (-1, -1)
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=writing if through_pipe else None,
        stderr=subprocess.STDOUT if through_pipe else None,
        start_new_session=True,
    )
    copying = None
    if through_pipe:
        os.close(writing)
        copying = forward(reading, sys.stdout.fileno())

    def pass_on(number: int, _frame: object) -> None:
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            pass

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    code = wait_for(child.pid, seconds)
    if code is None:
        print(f"\nnot finished after {seconds / 60:.0f} minutes; running were:", file=sys.stderr)
        for pid in descendants(os.getpid()):
            print(f"  {pid}  {name_of(pid)}", file=sys.stderr)
        sys.stderr.flush()
        # pytest answers SIGINT with what it was doing and what has failed so far.
        pass_on(signal.SIGINT, None)
        wait_for(child.pid, 20)
        code = TIME_IS_UP
    child.returncode = code  # it is collected already
    left = clear_up()
    if copying is not None:
        copying.join(5)
    if left:
        print(f"left behind, and ended: {len(left)}", file=sys.stderr)
        for words in left[:20]:
            print(f"  {words}", file=sys.stderr)
    return code if code >= 0 else 128 - code


def main() -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description="run a command that always ends and leaves nothing behind")
    parser.add_argument("--minutes", type=float, default=40.0, help="how long it may take")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    return run(arguments.command, arguments.minutes * 60)


if __name__ == "__main__":
    sys.stdout.flush()
    # Threads that still copy to a closed pipe must not hold the end up.
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
