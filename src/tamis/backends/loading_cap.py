"""The memory cap of a forking server while it loads the stages of a job.

Workers have caps of their own (guard.py). The process that they are forked from loads models, tokenizers and the user's
modules before there is any worker, and what these take is not known beforehand: so it gets what the budget leaves, and
no more.

Covers: everything from unpickling the job to the last `setup_on_node`, children of the server included. Does not cover:
the libraries that every job needs (numpy, Arrow, kernels), which are loaded before, so that the smallest budget can be
measured and named.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from collections.abc import Iterator, Mapping

from tamis import files
from tamis.backends.fork_messages import NotLoaded
from tamis.engine.run.budget.shares import estimated_budget
from tamis.errors import BudgetError
from tamis.memory import meter
from tamis.memory.kill_tree import end_tree
from tamis.memory.sampler import Sampler
from tamis.sizes import format_size

SPARE_BYTES = (
    40_000_000  # other kernels, pandas: loaded also where the budget is too small for any job, to name the smallest
)
_HEADROOM_SHARE = 0.03  # of the budget: the supervisor grows a little meanwhile, and a failure has to be reported
_GROWTH = 1.25  # stages that failed are taken to need so much more than they had
_CLOSE_BYTES = 64_000_000  # a library that crashes with less than this left lacked memory
# Printed by the runtimes of Rust and C++ before they abort.
_ABORTED = re.compile(r"memory allocation of (?P<n>[0-9]{1,18}) bytes failed|std::bad_alloc")
_CRASHES = {-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGTRAP}
_is_off = False


@contextlib.contextmanager
def without_cap() -> Iterator[None]:
    """Load without a cap inside this block: for plans, which measure what loading takes and have no budget to keep."""
    global _is_off
    before, _is_off = _is_off, True
    try:
        yield
    finally:
        _is_off = before


class LoadingCap:
    """Keeps the process tree of a forking server inside the budget. Owned by the executor that waits for the server.

    `RLIMIT_DATA` of the server is what it has plus what the budget leaves, lowered after every sample by the pages of
    libraries and files that came since, which count as well. Children inherit it. What such pages, or several children,
    take beyond the budget ends the tree.
    """

    def __init__(self, watch: Sampler, pid: int, budget_bytes: int, log: str) -> None:
        self._watch, self._pid, self._budget_bytes, self._log = watch, pid, budget_bytes, log
        self._lock = threading.Lock()
        self._is_active = self._is_exceeded = False
        self._ceiling_bytes = self._last_bytes = self._used_bytes = self._peak_bytes = self._log_start = 0
        self._most_anon_bytes = self._file_bytes = 0

    def begin(self) -> int:
        """Set the cap on a server that waits; return the bytes that it may allocate from here on, 0 for no limit."""
        if _is_off:
            return 0
        self._watch.sample(exact=True)
        self._used_bytes = self._peak_bytes = self._watch.used_bytes
        within_budget = int(self._budget_bytes * (1 - _HEADROOM_SHARE))
        self._ceiling_bytes = max(within_budget, self._used_bytes + SPARE_BYTES)
        self._last_bytes = max(self._budget_bytes, self._ceiling_bytes) - int(self._budget_bytes * _HEADROOM_SHARE / 2)
        status = meter.status(self._pid) or {}
        self._file_bytes = _file_bytes(status)
        self._most_anon_bytes = status.get("RssAnon", 0) + self._ceiling_bytes - self._used_bytes
        with contextlib.suppress(OSError):
            self._log_start = os.path.getsize(self._log)
        self._is_active = True
        self._watch.add_listener(self._limit)
        self._watch.sample_faster(True)
        return self._ceiling_bytes - self._used_bytes

    def end(self) -> None:
        """Lift the cap."""
        self._watch.remove_listener(self._limit)
        with self._lock:
            if self._is_active:
                self._is_active = False
                meter.set_data_limit(self._pid, None)

    def check(self, answer: NotLoaded | None, code: int | None) -> None:
        """Raise BudgetError if loading failed for want of memory.

        `code`: exit status of a server that gave no answer.
        """
        if not self._ceiling_bytes:
            return
        requested_bytes = answer.requested_bytes if answer is not None else 0
        is_memory = self._is_exceeded or (answer is not None and answer.is_memory)
        if (
            not is_memory and (aborted := _ABORTED.search(self._log_since())) is not None
        ):  # the server, or a child of its
            is_memory, requested_bytes = True, int(aborted["n"] or 0)
        if answer is None and code in _CRASHES:
            is_memory |= self._ceiling_bytes - self._peak_bytes < _CLOSE_BYTES
        if not is_memory:
            return
        needed = max(self._peak_bytes + requested_bytes, int(max(self._peak_bytes, self._budget_bytes) * _GROWTH))
        named = estimated_budget(needed)
        where = f"stage {answer.stage!r}" if answer is not None and answer.stage else "the stages"
        more = f", where an allocation of {format_size(requested_bytes)} failed" if requested_bytes >= 10**6 else ""
        raise BudgetError(
            f"a memory budget of {format_size(self._budget_bytes)} is too small: {format_size(self._used_bytes)} go "
            "to the supervisor and the "
            f"forking server, and loading {where} takes more than the rest{more}; the smallest that may work is "
            f"{named // 10**6}MB",
            named,
        )

    def _limit(self) -> None:
        """Lower the cap after a sample; called in the thread of the sampler."""
        with self._lock:
            if not self._is_active:
                return
            used = self._watch.used_bytes
            self._peak_bytes = max(self._peak_bytes, used)
            if used > self._last_bytes:
                self._is_exceeded, self._is_active = True, False
                end_tree(self._pid)
                return
            status = meter.status(self._pid)
            if status is None or not status["RssAnon"]:  # it has just ended
                return
            # All from one reading: a sample of its use is older than its data by what it has allocated meanwhile.
            untouched = max(0, status["VmData"] - status["RssAnon"])
            most_anon = self._most_anon_bytes - max(0, _file_bytes(status) - self._file_bytes)
            with contextlib.suppress(OSError):
                meter.set_data_limit(self._pid, max(0, untouched + most_anon))

    def _log_since(self) -> str:
        """Return the end of what was logged since the cap was set."""
        try:
            n_bytes = os.path.getsize(self._log) - self._log_start
        except OSError:
            return ""
        return files.tail(self._log, min(n_bytes, 4000)) if n_bytes > 0 else ""


def _file_bytes(status: Mapping[str, int]) -> int:
    """Return the resident pages of a process that RLIMIT_DATA does not count."""
    return status.get("RssFile", 0) + status.get("RssShmem", 0)
