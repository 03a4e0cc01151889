"""Output of a run besides its progress: the first traceback of every error, and lines that workers print.

A traceback is shown once, as soon as it arrives; errors of the same stage, type and line are counted. Output of workers
is read from their logs, here and on the nodes of a cluster, so that no worker ever waits for a terminal. Both are
bounded: a stage that prints for every document fills neither the terminal nor the memory.
"""

from __future__ import annotations

import glob
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from tamis.engine.activity import in_words
from tamis.terminal import printable

MAX_ERRORS = 10  # distinct ones that are shown
LINES_AT_ONCE, LINES_PER_S = 200, 50
_MAX_LINE = 500
_USUAL_LINE_BYTES = 64
_READ_BYTES = 1 << 18
_FOLDER_EVERY_S = 1.0
_SUPPRESSED_EVERY_S = 5.0


class ErrorReports:
    """Shows each distinct error of stages once, and counts it."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def add(self, failure: Mapping[str, Any]) -> None:
        """Take the facts of a failure (`Failure.facts`)."""
        trace, stage = str(failure.get("trace") or ""), str(failure.get("stage") or "")
        if not trace or failure.get("kind") not in ("error", "setup"):
            return
        key = stage, str(failure["error"]).partition(":")[0], str(failure.get("at") or "")
        self._counts[key] += 1
        if self._counts[key] == 1 and len(self._counts) <= MAX_ERRORS:
            text = "\n".join(printable(line) for line in trace.rstrip().splitlines())
            self._show(f"{printable(in_words(stage)) or 'a worker'} failed:\n{text}")

    def close(self) -> None:
        """Show how often errors were repeated."""
        for (stage, error, line), n in self._counts.items():
            if n > 1:
                where = f" [{line}]" if line else ""
                self._show(printable(f"{in_words(stage) or 'a worker'}: {error}{where}: {n} attempts failed"))


class WorkerOutput:
    """Shows labelled lines (engine/worker/stage_output.py) that are appended to the logs of workers in a folder."""

    def __init__(self, folder: str, show: Callable[[str], None], clock_s: Callable[[], float] = time.monotonic) -> None:
        """Skip what the logs hold already, of earlier runs."""
        self._folder, self._show, self._clock_s = folder, show, clock_s
        self._positions = {path: os.path.getsize(path) if os.path.exists(path) else 0 for path in self._logs()}
        self._listed_s = self._refilled_s = self._suppressed_s = clock_s()
        self._n_allowed, self._n_suppressed = float(LINES_AT_ONCE), 0

    def poll(self) -> None:
        """Show what is new."""
        now_s = self._clock_s()
        if now_s - self._listed_s >= _FOLDER_EVERY_S:
            self._listed_s = now_s
            for path in self._logs():
                self._positions.setdefault(path, 0)
        self._n_allowed = min(LINES_AT_ONCE, self._n_allowed + (now_s - self._refilled_s) * LINES_PER_S)
        self._refilled_s = now_s
        for path in self._positions:
            self._show_new(path)
        if self._n_suppressed and now_s - self._suppressed_s >= _SUPPRESSED_EVERY_S:
            self._suppressed_s = now_s
            self._show_suppressed()

    def close(self) -> None:
        """Show the rest, after the workers have ended."""
        self._listed_s = float("-inf")
        self.poll()
        if self._n_suppressed:
            self._show_suppressed()

    def _logs(self) -> list[str]:
        folder = glob.escape(self._folder)
        return [os.path.join(folder, "worker.log"), *sorted(glob.glob(os.path.join(folder, "worker-*.log")))]

    def _show_new(self, path: str) -> None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:  # not there yet
            return
        with open(fd, "rb", buffering=0) as log:
            n_bytes = os.fstat(fd).st_size
            position = self._positions[path]
            if n_bytes < position:  # a log that grew too long was cut
                position = n_bytes
            skips = n_bytes - position > _READ_BYTES
            log.seek(n_bytes - _READ_BYTES if skips else position)
            data = log.read(_READ_BYTES) or b""
        whole, newline, partial = data.rpartition(b"\n")
        self._positions[path] = (n_bytes if skips else position + len(data)) - len(partial)
        lines = whole.split(b"\n") if newline else []
        if skips:
            self._n_suppressed += (n_bytes - position) // _USUAL_LINE_BYTES
            lines = lines[1:]
        labelled = [line for line in lines if line.startswith(b"[") and b"] " in line]
        n_shown = int(min(len(labelled), self._n_allowed))
        self._n_allowed -= n_shown
        self._n_suppressed += len(labelled) - n_shown
        if n_shown:
            texts = (line[:_MAX_LINE].decode("utf-8", "replace") for line in labelled[:n_shown])
            self._show("\n".join(printable(text, keep="\t") for text in texts))

    def _show_suppressed(self) -> None:
        n, self._n_suppressed = self._n_suppressed, 0
        self._show(f"[workers] about {n:,} more lines are not shown; see {printable(self._logs()[0])}")


class Console:
    """The messages that one run prints, besides its progress."""

    def __init__(self, folder: str, show: Callable[[str], None], shows_output: bool) -> None:
        """Read the logs of workers in `folder`."""
        self._errors = ErrorReports(show)
        self._output = WorkerOutput(folder, show) if shows_output else None

    def failed(self, failure: Mapping[str, Any]) -> None:
        """Take the facts of a failure of a unit."""
        self.poll()  # what led to it comes first
        self._errors.add(failure)

    def poll(self) -> None:
        if self._output is not None:
            self._output.poll()

    def close(self) -> None:
        """Show the rest; called when the workers have ended."""
        if self._output is not None:
            self._output.close()
        self._errors.close()
