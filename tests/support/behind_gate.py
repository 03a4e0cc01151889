"""A process behind a gate, which does what it is told, for tests of who holds the other end.

usage: python behind_gate.py DESCRIPTOR     (a socket: it sends the gate, then takes lines of Python and answers each)
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from types import TracebackType

from tamis.memory.release import hygiene_env
from tamis.memory.seccomp_gate import close_gate


class BehindGate:
    """Used as a context manager; `gate` is the descriptor."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=hygiene_env(os.environ),
            )
        _, fds, _, _ = socket.recv_fds(self._ours, 1, 1)
        self.gate: int | None = fds[0] if fds else None
        self.pid = self.process.pid

    def __enter__(self) -> BehindGate:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ours.close()
        self.process.kill()
        self.process.wait()

    def fileno(self) -> int:
        return self._ours.fileno()

    def tell(self, line: str) -> None:
        """Have it done; `answer` waits for its end."""
        self._ours.sendall(line.encode() + b"\n")

    def answer(self) -> str:
        """Return the value of `result` afterwards, or the error."""
        data = b""
        while not data.endswith(b"\n"):
            more = self._ours.recv(4096)
            if not more:
                return "gone"
            data += more
        return data.decode().strip()

    def do(self, line: str) -> str:
        self.tell(line)
        return self.answer()


def main(fd: int) -> None:
    from tamis.backends.forking import adopt_orphans

    adopt_orphans()
    sock = socket.socket(fileno=fd)
    gate = close_gate()
    socket.send_fds(sock, [b"x"], [gate] if gate is not None else [])
    if gate is not None:
        os.close(gate)
    names: dict[str, object] = {}
    for line in sock.makefile():
        try:
            exec(line.replace("\\n", "\n"), names)
            told = repr(names.pop("result", None))
        except BaseException as exc:
            told = f"{type(exc).__name__}: {exc}"
        sock.sendall(told.encode() + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
