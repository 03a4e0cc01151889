"""The sampler: a thread that counts the memory of all processes of a run, from start to end (pss_sum.py).

There is one for this process with everything below it (commands), and one for what Tamis starts from it (programs of
the user's, whose own memory is reported but not counted). Peaks are kept in marks: a caller that needs the highest use
of some time opens one at its beginning. What was used while none was open belongs to the first that is opened.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from tamis._dataclasses import dataclass
from tamis.memory import meter
from tamis.memory.pace import Pace
from tamis.memory.pss_sum import PssSum

_WALK_S = 0.5
_START_S = 1.0  # a process that was just started may still be on its way to becoming one of ours
MARK_VARIABLE = "TAMIS_STARTED_BY"
_TOKEN = os.urandom(8).hex()  # of this process: it is in the environment of every process that Tamis starts from here


@dataclass
class Mark:
    """The most that was in use since it was opened.

    `caller_bytes`: of the calling process, where that does not count.
    """

    peak_bytes: int = 0
    caller_bytes: int = 0
    _recent_bytes: int = 0

    def note(self, used_bytes: int, caller_bytes: int) -> None:
        self.peak_bytes = max(self.peak_bytes, used_bytes)
        self._recent_bytes = max(self._recent_bytes, used_bytes)
        self.caller_bytes = max(self.caller_bytes, caller_bytes)

    def pop_recent(self) -> int:
        """Return the peak use since the last call."""
        recent, self._recent_bytes = self._recent_bytes, 0
        return recent


class Sampler:
    """Made by `record_peak`; `count_caller`: this process and all below it count, not only what Tamis starts."""

    def __init__(self, count_caller: bool, tally: PssSum | None = None) -> None:
        self._count_caller = count_caller
        self._tally = tally or PssSum(WholeTree() if count_caller else StartedProcesses())
        self._marks: list[Mark] = []
        self._early = Mark()  # of the time without any mark
        self._listeners: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._ended, self._roused = threading.Event(), threading.Event()
        self._pace = Pace()
        self._thread = threading.Thread(target=self._run, name="tamis-sampler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._roused.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    @property
    def used_bytes(self) -> int:
        """All that counts, at the last look."""
        return self._tally.used_bytes

    @property
    def uses(self) -> Mapping[int, int]:
        """Each process, at the last look."""
        return self._tally.uses

    @property
    def parents(self) -> Mapping[int, int]:
        """Parent of each process, as of the last sample."""
        return self._tally.parents

    def sample(self, exact: bool = False) -> None:
        """Look now, whatever the thread does; `exact`: exactly."""
        with self._lock:
            self._tally.exact_s, self._tally.idle_s = self._pace.exact_s, self._pace.idle_s
            peak = self._tally.sample(exact)
            self._pace.note(self._tally.used_bytes)
            caller = 0 if self._count_caller else (meter.statm() or meter.Statm(0, 0)).resident_bytes
            for mark in self._marks or [self._early]:
                mark.note(peak, caller)
        for listener in list(self._listeners):
            listener()

    def note(self, used_bytes: int) -> None:
        """Record a use that was measured elsewhere."""
        with self._lock:
            for mark in self._marks:
                mark.note(used_bytes, 0)

    def open_mark(self) -> Mark:
        self.sample(exact=True)
        with self._lock:
            mark, self._early = self._early, Mark()
            self._marks.append(mark)
        return mark

    def close_mark(self, mark: Mark) -> None:
        self.sample(exact=True)
        with self._lock:
            self._marks = [m for m in self._marks if m is not mark]

    def sample_faster(self, is_hurried: bool) -> None:
        """Look more often for a while: something may grow that nothing else bounds."""
        if is_hurried and not self._pace.is_hurried:
            self._roused.set()
        self._pace.is_hurried = is_hurried

    def limit(self, budget_bytes: int | None) -> None:
        """Say what the processes must stay below: as long as they are far from it and stand still, looks are rare."""
        self._pace.budget_bytes = budget_bytes

    def expect_change(self) -> None:
        """Look soon: a process is about to begin something."""
        if self._pace.expect_change():
            self._roused.set()

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Have it called after every look, in the sampler's thread."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        self._listeners = [each for each in self._listeners if each != listener]

    def _run(self) -> None:
        while not self._ended.is_set():
            if self._roused.wait(self._pace.pause_s):
                self._roused.clear()
            else:
                self.sample()


# -- one for each way of counting -------------------------------------------------------------------------------------
_running: dict[bool, tuple[Sampler, int]] = {}  # count_caller -> sampler, how many use it
_starting = threading.Lock()


def begin(count_caller: bool) -> Sampler:
    """Return the sampler of this process, starting it if needed; the caller must call `end` later."""
    with _starting:
        sampler, n = _running.get(count_caller, (None, 0))
        if sampler is None:
            sampler = Sampler(count_caller)
            sampler.start()
        _running[count_caller] = sampler, n + 1
        return sampler


def end(count_caller: bool) -> None:
    with _starting:
        sampler, n = _running.pop(count_caller)
        if n > 1:
            _running[count_caller] = sampler, n - 1
    if n == 1:
        sampler.stop()


def note_elsewhere(count_caller: bool, used_bytes: int) -> None:
    """Record the use of another machine in all open marks; the peak of any single machine is what counts."""
    sampler, _ = _running.get(count_caller, (None, 0))
    if sampler is not None:
        sampler.note(used_bytes)


@contextlib.contextmanager
def record_peak(count_caller: bool) -> Iterator[Mark]:
    """Yield a mark that records the peak memory use of the enclosed block."""
    sampler = begin(count_caller)
    mark = sampler.open_mark()
    try:
        yield mark
    finally:
        sampler.close_mark(mark)
        end(count_caller)


def _after_fork() -> None:
    """Reset the counters: threads and what they counted stay with the parent."""
    global _starting
    _starting = threading.Lock()
    _running.clear()


os.register_at_fork(after_in_child=_after_fork)


# -- which processes --------------------------------------------------------------------------------------------------
def marked(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a process that Tamis starts, by which it and its descendants are recognized."""
    return {**environment, MARK_VARIABLE: _TOKEN}


def is_marked(pid: int) -> bool | None:
    """Return True if a process was started by us, directly or not; None if it is gone or not accessible."""
    environment = meter.environment(pid)
    return None if environment is None else f"{MARK_VARIABLE}={_TOKEN}".encode() in environment


class Descendants:
    """All living descendants of this process, each with its parent; parents come before their children.

    They are looked for anew where one may have come (a process or thread was started anywhere) or gone, else twice a
    second: to walk the tree costs more than all else in a look.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._parents: dict[int, int] = {}
        self._last_pid: int | None = None
        self._walked_s = float("-inf")

    def __call__(self) -> dict[int, int]:
        last_pid, now_s = meter.last_pid(), self._clock()  # before the walk: who comes during it is found next time
        if (
            last_pid is None
            or last_pid != self._last_pid
            or now_s - self._walked_s >= _WALK_S
            or not all(map(meter.exists, self._parents))
        ):
            self._parents, self._last_pid, self._walked_s = meter.descendants(), last_pid, now_s
        return self._parents


class WholeTree:
    """This process and all below it."""

    def __init__(self) -> None:
        self._descendants = Descendants()

    def __call__(self) -> dict[int, int]:
        return {os.getpid(): 0, **self._descendants()}


class StartedProcesses:
    """The processes that Tamis started from this one, and all below them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._descendants = Descendants(clock)
        self._is_ours: dict[int, bool] = {}
        self._first_seen_s: dict[int, float] = {}

    def __call__(self) -> dict[int, int]:
        parents = self._descendants()
        self_pid = os.getpid()
        direct = [pid for pid, parent in parents.items() if parent == self_pid]
        self._is_ours = {pid: ours for pid, ours in self._is_ours.items() if pid in parents}
        self._first_seen_s = {pid: since for pid, since in self._first_seen_s.items() if pid in parents}
        matching: dict[int, int] = {}
        for pid in direct:
            if pid not in self._is_ours:
                ours = bool(is_marked(pid))
                if ours or self._clock() - self._first_seen_s.setdefault(pid, self._clock()) > _START_S:
                    self._is_ours[pid] = ours
            if self._is_ours.get(pid):
                matching[pid] = self_pid
        for pid, parent in parents.items():  # parents come before their children
            if parent in matching:
                matching[pid] = parent
        return matching
