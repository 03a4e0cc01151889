"""Output of stages: `print` and logging in a worker, written to the run's log under the name of the stage.

The run shows new lines of that log on the terminal (run/console.py). A worker writes to a file and waits for no reader:
it neither blocks nor fails because of what it prints. Covers Python's own streams. What libraries and child processes
write to the descriptors goes to the log as it is.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterable

from tamis.engine import activity

MAX_LINE = 4000
_NO_STAGE = "workers"


class StageStream(io.TextIOBase):
    r"""Text stream that writes whole lines to a descriptor, each with the label of the stage that wrote it.

    A line that a progress bar writes over and over (`\r`) is written as it was last.
    """

    encoding = "utf-8"

    def __init__(self, fd: int) -> None:
        self._fd, self._partial, self._label = fd, "", ""
        self._buffer: io.FileIO | None = None

    @property
    def buffer(self) -> io.FileIO:
        """The stream of bytes below this one; what is written to it has no label."""
        if self._buffer is None:
            self._buffer = io.FileIO(self._fd, "wb", closefd=False)
        return self._buffer

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        *lines, partial = (self._partial + text).split("\n")
        self._partial = partial.rpartition("\r")[2][-MAX_LINE:]
        if lines:
            self._put(lines, activity.now())
        self._label = activity.now()
        return len(text)

    def end_line(self) -> None:
        """Write a line that has no end yet."""
        if self._partial:
            self._put([self._partial], self._label)
            self._partial = ""

    def fileno(self) -> int:
        return self._fd

    def writable(self) -> bool:
        return True

    def _put(self, lines: Iterable[str], label: str) -> None:
        prefix = f"[{label or _NO_STAGE}] "
        text = "".join(f"{prefix}{line.rstrip(chr(13)).rpartition(chr(13))[2][:MAX_LINE]}\n" for line in lines)
        pending = memoryview(text.encode("utf-8", "backslashreplace"))
        with contextlib.suppress(OSError):  # the log may lie on a full disk
            while pending:
                pending = pending[os.write(self._fd, pending) :]


def label_output() -> None:
    """Label everything that Python code of this process prints from now on."""
    sys.stdout, sys.stderr = StageStream(1), StageStream(2)


def end_lines() -> None:
    """Write what stages have printed without an end of line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, StageStream):
            stream.end_line()
