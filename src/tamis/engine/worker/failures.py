"""Failures of units as reports: bad data, a stage's own error, or a process that has used up its resources.

Memory, file descriptors and threads are distinguished here (failures.py knows the exceptions); what becomes of the unit
is decided in supervisor/retry_policy.py.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace

from tamis import secrets
from tamis.engine.messages import Failure, FailureKind, StageUse
from tamis.errors import StoreError
from tamis.failures import clear_frames, is_descriptor_failure, is_memory_failure, is_thread_failure, requested_bytes
from tamis.memory import meter

NO_DEBUGGER = (
    "a debugger needs a terminal, which worker processes do not have: run with InProcessExecutor() "
    "(--executor in_process)"
)
_N_RESERVED = 8
_MANY_THREADS = 8  # more than a worker began with: their stacks, not the data, take its memory
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_LIBRARY_PATHS = (_PACKAGE, "site-packages", "/lib/python")


class DescriptorReserve:
    """Descriptors held in reserve while stages run.

    With them, measuring and reporting work after stages have used up all others.
    """

    def __enter__(self) -> None:
        self._descriptors: list[int] = []
        with contextlib.suppress(OSError):  # as many as there are
            for _ in range(_N_RESERVED):
                self._descriptors.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def __exit__(self, *exc_info: object) -> None:
        for fd in self._descriptors:
            os.close(fd)


def failure_of(
    kind: FailureKind, exc: BaseException, stage: str, uses: Sequence[StageUse] = (), first_threads: int = 0
) -> Failure:
    """Return the report on an exception; `kind` is what it is if the process has not run out of something.

    What was used up is named with the stage that took most of it in this unit (`uses`), which need not be the one that
    failed. `first_threads`: how many the worker had when it began.
    """
    n_open, n_threads = meter.n_descriptors(), meter.n_threads()
    is_short = is_descriptor_failure(exc)
    if not is_short and is_thread_failure(exc) and n_threads - first_threads >= _MANY_THREADS:
        most = max(((use.n_threads, use.label) for use in uses), default=(0, ""))
        return _used_up(FailureKind.THREADS, exc, stage, f"{n_threads} threads", most)
    if not is_short and is_memory_failure(exc):
        return failure(FailureKind.MEMORY, exc, stage)
    if is_short or 0 < meter.max_descriptors() <= n_open:
        most = max(((use.n_descriptors, use.label) for use in uses), default=(0, ""))
        used = f"EMFILE: {n_open} of {meter.max_descriptors()} file descriptors are open"
        return _used_up(FailureKind.DESCRIPTORS, exc, stage, used, most)
    return failure(kind, exc, stage)


def _used_up(kind: FailureKind, exc: BaseException, stage: str, used: str, most: tuple[int, str]) -> Failure:
    """Return the failure of a unit. `most`: the largest consumption of a stage in this unit, and its label."""
    n, label = most
    report = failure(kind, exc, label if n > 0 else stage)
    by = f", {n} of them by stage {label!r} in this partition" if n > 0 else ""
    return replace(report, error=f"{report.error} ({used}{by})")


def failure(kind: FailureKind, exc: BaseException, stage: str = "") -> Failure:
    """Return the report on an exception of this kind."""
    if kind is FailureKind.MEMORY:
        clear_frames(exc)
    return Failure(
        kind,
        error=secrets.hide(f"{type(exc).__name__}: {exc}")[:2000],
        stage=stage,
        trace=secrets.hide(_trace_of(exc))[-4000:],
        at=secrets.hide(_raised_at(exc))[:500],
        requested_bytes=requested_bytes(exc) or 0 if kind is FailureKind.MEMORY else 0,
    )


def is_machine_failure(cause: BaseException) -> bool:
    """Return True if the failure is the machine's: a store that does not answer, or a full disk.

    These say nothing about the data: no reason to cut it or to quarantine records.
    """
    return isinstance(cause, StoreError) or (isinstance(cause, OSError) and cause.errno in _NO_ROOM)


class DebuggerUnavailable(Exception):
    """A stage called breakpoint() in a process without a terminal."""


def refuse_breakpoint(*_: object, **__: object) -> None:
    """Raise instead of opening a debugger that could not read a command: `sys.breakpointhook` of workers."""
    raise DebuggerUnavailable(NO_DEBUGGER)


def is_debugger_exit(exc: BaseException) -> bool:
    """Return True if a debugger was left (with `q`, at the end of its input), or could not be opened."""
    bdb, pdb = sys.modules.get("bdb"), sys.modules.get("pdb")
    if isinstance(exc, DebuggerUnavailable) or (bdb is not None and isinstance(exc, bdb.BdbQuit)):
        return True
    if pdb is None or not isinstance(exc, SystemExit):
        return False
    return any(f.f_code.co_filename == pdb.__file__ for f, _ in traceback.walk_tb(exc.__traceback__))  # Python 3.14


def _trace_of(exc: BaseException) -> str:
    """Format a traceback from the first frame that is not of Tamis on; all of it if there is none."""
    formatted = traceback.TracebackException.from_exception(exc)
    own = [i for i, frame in enumerate(formatted.stack) if not frame.filename.startswith(_PACKAGE)]
    if own:
        formatted.stack = traceback.StackSummary.from_list(formatted.stack[own[0] :])
    return "".join(formatted.format())


def _raised_at(exc: BaseException) -> str:
    """Return the last line of the traceback in the user's own code: file, number, function and text.

    Empty if there is none.
    """
    frames = traceback.extract_tb(exc.__traceback__)
    user_frames = [f for f in frames if f.filename != __file__ and not any(p in f.filename for p in _LIBRARY_PATHS)]
    if not user_frames:
        return ""
    last = user_frames[-1]
    text = f": {last.line}" if last.line else ""
    return f"{os.path.basename(last.filename)}, line {last.lineno}, in {last.name}{text}"
