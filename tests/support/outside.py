"""Somebody outside: runs a command and counts the memory of its whole process tree, as fast as it can.

Knows nothing of Tamis.

usage: python outside.py [--timeout S] COMMAND [ARGUMENT...]     prints one line of JSON, the command's output goes to
stderr

peak_bytes     largest sum of PSS over the tree, daemons that left it included
n_looks        how often it looked
status         exit status of the command, or minus the signal; 124 after the timeout
left           processes of the command that were still there a second after its end (they are killed)

Found by a variable in their environment, processes count wherever they were moved to. Linux only; plain reads of /proc.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass

_SCAN_S = 0.2  # for those that left the tree
_GRACE_S = 1.0


@dataclass
class Seen:
    peak_bytes: int
    n_looks: int
    status: int
    seconds: float
    left: list[str]
    output: str = ""


def pss_bytes(pid: int) -> int:
    """0 for one that is gone."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            return next((int(line.split()[1]) * 1024 for line in file if line.startswith(b"Pss:")), 0)
    except (OSError, StopIteration):
        return 0


def below(pid: int) -> list[int]:
    """Return the process and all below it."""
    found, i = [pid], 0
    while i < len(found):
        try:
            for task in os.listdir(f"/proc/{found[i]}/task"):
                with open(f"/proc/{found[i]}/task/{task}/children", "rb") as file:
                    found += [int(child) for child in file.read().split()]
        except OSError:
            pass
        i += 1
    return found


def strays(mark: bytes) -> set[int]:
    """Living processes with the mark in their environment."""
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark in file.read():
                        found.add(int(name))
            except OSError:
                pass
    return found


def command_line(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace")[:200]
    except OSError:
        return ""


def watch(command: list[str], timeout_s: float, output: int) -> Seen:
    mark = uuid.uuid4().hex
    began_s = time.monotonic()
    process = subprocess.Popen(
        command, env={**os.environ, "OUTSIDE": mark}, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
    )
    peak = n = 0
    away: set[int] = set()
    scanned_s = began_s
    status = None
    while status is None:
        status = process.poll()
        now = time.monotonic()
        if now - scanned_s > _SCAN_S:
            scanned_s, away = now, strays(mark.encode())
        peak = max(peak, sum(pss_bytes(pid) for pid in {*below(process.pid), *away}))
        n += 1
        if now - began_s > timeout_s:
            for pid in {*below(process.pid), *strays(mark.encode())}:
                _kill(pid)
            process.wait()
            status = 124
    seconds = time.monotonic() - began_s
    deadline_s = time.monotonic() + _GRACE_S
    while (left := strays(mark.encode())) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    names = sorted(name for pid in left if (name := command_line(pid)))
    for pid in left:
        _kill(pid)
    return Seen(peak, n, status, round(seconds, 3), names)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def measured(command: list[str], timeout_s: float = 120.0, **environment: str) -> Seen:
    """Run `watch` in a process of its own, so that the caller's threads do not slow it.

    Returns what it measured, and what the command printed.
    """
    done = subprocess.run(
        [sys.executable, __file__, "--timeout", str(timeout_s), *command],
        capture_output=True,
        text=True,
        errors="replace",
        check=True,
        env={**os.environ, **environment},
    )
    return Seen(**{**json.loads(done.stdout), "output": done.stderr})


if __name__ == "__main__":
    arguments = sys.argv[1:]
    limit = 120.0
    if arguments[:1] == ["--timeout"]:
        limit, arguments = float(arguments[1]), arguments[2:]
    seen = watch(arguments, limit, 2)
    print(json.dumps({k: v for k, v in vars(seen).items() if k != "output"}))
