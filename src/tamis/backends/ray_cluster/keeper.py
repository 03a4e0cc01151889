"""The keeper of a Ray cluster: starts its processes, waits for the end of the driver, and ends all of them.

Ray's processes detach themselves from their parent; some outlive a killed driver by minutes or forever. Here
they stay below one process, which adopts orphans and is left out of what the driver's budget counts (it is detached
from the driver, too). The driver holds the other end of a socket; when that closes, however the driver ended, the
cluster is gone a moment later.

python -m tamis.backends.ray_cluster.keeper DESCRIPTOR LOG FOLDER COMMAND...   (FOLDER: removed at the end; empty for
none)
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from typing import NoReturn

from tamis.backends.forking import adopt_orphans, name_process
from tamis.memory import kill_tree, meter

START_S = 120.0
_LOOK_S = 1.0


def main(fd: int, log: str, folder: str, command: list[str]) -> NoReturn:
    """Detach, run the command (which leaves daemons), report as one line of JSON, and wait for the driver's end."""
    if os.fork():
        os._exit(0)  # the starter waits for this exit; the child has no parent then
    name_process("tamis-keeper")
    adopt_orphans()
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the end of the driver is what counts
    sock = socket.socket(fileno=fd)
    sock.set_inheritable(False)
    try:
        result = _start(command, log, sock)
        with contextlib.suppress(OSError):
            sock.sendall(json.dumps({**result, "pid": os.getpid()}).encode() + b"\n")
        while result["code"] == 0 and not _is_closed(sock, _LOOK_S):
            kill_tree.reap()
        _end_all()
        if folder and result["code"] == 0:  # else the log in it is still needed
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        _end_all()
        os._exit(0)


def _start(command: list[str], log: str, sock: socket.socket) -> dict[str, object]:
    """Run the command to its end, unless the driver is gone before."""
    with open(log, "ab") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    deadline_s = time.monotonic() + START_S
    while process.poll() is None:
        if _is_closed(sock, 0.05):
            return {"code": -1}
        if time.monotonic() > deadline_s:
            return {"code": -1, "error": f"not up after {START_S:.0f} s"}
    return {"code": process.returncode}


def _is_closed(sock: socket.socket, wait_s: float) -> bool:
    """Return True if the socket is closed.

    Nothing is ever sent to the keeper, so a readable socket means the end of the connection.
    """
    return bool(select.select([sock], [], [], wait_s)[0])


def _end_all() -> None:
    """Kill all descendants until none is left.

    Kills parents before their children, so that no child is started again.
    """
    for _ in range(200):
        below = list(meter.descendants(os.getpid()))
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        kill_tree.reap()
        if not below:
            return
        time.sleep(0.02)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])
