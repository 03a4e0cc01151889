"""Ends a wait early: a pipe that `select` watches, and that other threads write to."""

from __future__ import annotations

import contextlib
import os
import threading


class Waker:
    """Register it with a selector; `drain` it when it is ready.

    `wake` may be called by any thread, also when it is closed.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._lock = threading.RLock()

    def fileno(self) -> int:
        return self._read

    def wake(self) -> None:
        with self._lock, contextlib.suppress(BlockingIOError, OSError):
            if self._write >= 0:
                os.write(self._write, b"x")

    def drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 4096)

    def close(self) -> None:
        with self._lock:  # other threads may still call: the number could be that of another file by then
            os.close(self._read)
            os.close(self._write)
            self._write = -1
