"""The memory of several processes as an outside observer counts it: the sum of their PSS, now.

Asks /proc through a ProcessMeter.

PSS is dear (1 to 6 ms for a process of ours, which cannot map memory meanwhile), resident memory is cheap (8 us). So
PSS is asked for once or twice a second, and whenever who is there or what is shared has changed; in between it moves
with resident memory: anonymous pages are a process's own, and file pages that come are taken to be shared like those
that are there. While no process touches new pages or gives any back, nothing of this can have changed but for other
programs that share pages of libraries, and every five to twenty seconds are enough (pace.py). What rose and fell
between two looks is known from the kernel's own count of the highest resident memory. Used by sampler.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from tamis.memory import meter as proc
from tamis.memory.meter import PAGE_BYTES, ProcessMeter, Statm
from tamis.memory.pace import EXACT_S, IDLE_S

_CPU_SHARE, _SAVED_S = 0.05, 0.1  # of one core for questions, and how much of it may be saved up for restless moments
_FALL_BYTES = 1 << 20
_MOVED_SHARE, _LOST_SHARE = 0.01, 0.1  # of the sum: so many pages make us ask again, or make the sum a guess

Processes = Callable[[], Mapping[int, int]]
"""The processes to count, each with its parent."""


class _Basis(NamedTuple):
    """A process when its PSS was last asked for."""

    pss_bytes: int
    anon_bytes: int
    shared_bytes: int

    @property
    def shared_share(self) -> float:
        """Bytes that one of its file pages counts, as others map it too."""
        if not self.shared_bytes:
            return 1.0
        return min(1.0, max(0, self.pss_bytes - self.anon_bytes) / self.shared_bytes)


class PssSum:
    """As of the last `sample`.

    `used_bytes`: all of them together; `uses`: each, rather too much than too little (for enforcing a limit);
    `parents`: who started whom.
    """

    def __init__(
        self,
        processes: Processes,
        meter: ProcessMeter | None = None,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._processes, self._clock, self._cpu = processes, clock, cpu
        self._meter: ProcessMeter = meter or proc
        self._basis: dict[int, _Basis] = {}
        self._exact_pids: set[int] = set()  # those whose PSS was asked for at the same time: they share with each other
        self._resident: dict[int, int] = {}  # at the last look
        self._peaks: dict[int, int] = {}  # known of each since its kernel counter was last reset
        self._faults: dict[int, int] = {}  # of each, when PSS was last asked of all
        self._all_at, self._due_at, self._sampled_s = float("-inf"), float("-inf"), clock()
        self._credit_s = _SAVED_S
        self._was_exact = False
        self.exact_s, self.idle_s = EXACT_S, IDLE_S  # as the sampler says (pace.py)
        self.used_bytes = 0
        self.uses: dict[int, int] = {}
        self.parents: dict[int, int] = {}

    def sample(self, exact: bool = False) -> int:
        """Count now; `exact`: measure the PSS of all processes, however recently that was done.

        Returns the most in use since the last look, or 0 if that is not known: a process has just come or gone, and who
        shares what has changed.
        """
        self.parents = dict(self._processes())
        statms: dict[int, Statm] = {}
        for pid in self.parents:
            if (statm := self._meter.statm(pid)) is not None:
                statms[pid] = statm
        missed_bytes = self._risen_between(statms)
        now_s = self._clock()
        self._credit_s = min(_SAVED_S, self._credit_s + _CPU_SHARE * (now_s - self._sampled_s))
        self._sampled_s = now_s
        if exact or self._credit_s > 0:
            self._measure_all(statms, self._to_measure(statms, now_s))
        for pid in statms.keys() - self._basis.keys():
            self._measure(pid, statms)
        between_bytes = self.used_bytes + missed_bytes if missed_bytes and self._was_exact else 0
        self.used_bytes = sum(_likely(self._basis[pid], statm) for pid, statm in statms.items())
        self.uses = {pid: _at_most(self._basis[pid], statm) for pid, statm in statms.items()}
        self._resident = {pid: statm.resident_bytes for pid, statm in statms.items()}
        self._was_exact = (
            statms.keys() == self._exact_pids and self._moved(statms, statms) <= _LOST_SHARE * self.used_bytes
        )
        return max(between_bytes, self.used_bytes if self._was_exact else 0)

    def _risen_between(self, statms: Mapping[int, Statm]) -> int:
        """Return how far processes have risen above the last measurement since then.

        Only processes whose use falls are queried: they may have been higher in between.
        """
        missed = 0
        highest, self._peaks = self._peaks, {}
        for pid, statm in statms.items():
            before = self._resident.get(pid, 0)
            previous = max(highest.get(pid, 0), before)
            if statm.resident_bytes < before - _FALL_BYTES:
                peak = self._meter.peak_rss(pid) or 0
                missed += peak - before if peak > previous else 0
                previous = peak  # less than was known: the counter was reset meanwhile
            self._peaks[pid] = previous
        return missed

    def _to_measure(self, statms: Mapping[int, Statm], now_s: float) -> Iterable[int]:
        """Return all processes when it is time or one came or went; else those whose file pages have moved."""
        if statms.keys() != self._exact_pids or now_s - self._all_at >= self.idle_s:
            return statms
        if now_s - self._due_at >= self.exact_s:
            self._due_at = now_s
            if self._touched_bytes(statms) > _MOVED_SHARE * self.used_bytes:
                return statms
        return [pid for pid in statms if self._moved(statms, [pid]) > _MOVED_SHARE * self.used_bytes]

    def _touched_bytes(self, statms: Mapping[int, Statm]) -> int:
        """Return how much memory was touched for the first time, copied or given back since all were measured."""
        touched = 0
        for pid, statm in statms.items():
            n_new = (self._meter.n_faults(pid) or 0) - self._faults.get(pid, 0)
            basis = self._basis[pid]
            touched += PAGE_BYTES * n_new + abs(statm.resident_bytes - basis.anon_bytes - basis.shared_bytes)
        return touched

    def _moved(self, statms: Mapping[int, Statm], pids: Iterable[int]) -> int:
        return sum(abs(statms[pid].shared_bytes - self._basis[pid].shared_bytes) for pid in pids)

    def _measure_all(self, statms: dict[int, Statm], pids: Iterable[int]) -> None:
        """Measure the PSS of these processes and update their `statms`."""
        measured = set(pids)
        if not measured:
            return
        started_s = self._cpu()
        if measured == statms.keys():
            self._basis, self._exact_pids = {}, measured
            self._all_at = self._due_at = self._clock()
            self._faults = {pid: self._meter.n_faults(pid) or 0 for pid in measured}
        for pid in measured:
            self._measure(pid, statms)
        self._credit_s -= self._cpu() - started_s

    def _measure(self, pid: int, statms: dict[int, Statm]) -> None:
        """Measure the PSS of a process.

        The process may grow meanwhile, so its PSS is attributed to the middle of that time. If PSS is hidden, all
        resident memory counts.
        """
        pss_bytes, before = self._meter.pss(pid), statms[pid]
        after = self._meter.statm(pid) or Statm(0, 0)
        if pss_bytes is None:  # hidden, or it has just ended
            before = after
        statms[pid] = after
        resident = (before.resident_bytes + after.resident_bytes) // 2
        shared = (before.shared_bytes + after.shared_bytes) // 2
        self._basis[pid] = _Basis(resident if pss_bytes is None else pss_bytes, resident - shared, shared)


def _likely(basis: _Basis, now: Statm) -> int:
    """Estimate the PSS of a process now from its last exact one and its resident memory.

    >>> _likely(_Basis(100, 80, 50), Statm(resident_bytes=155, shared_bytes=60))  # 15 anonymous bytes more, 10 of files
    119
    >>> _likely(_Basis(100, 80, 50), Statm(resident_bytes=105, shared_bytes=25))  # half of the file pages are gone
    90
    """
    anon_bytes = now.resident_bytes - now.shared_bytes - basis.anon_bytes
    return max(0, basis.pss_bytes + anon_bytes + int((now.shared_bytes - basis.shared_bytes) * basis.shared_share))


def _at_most(basis: _Basis, now: Statm) -> int:
    """Return the same estimate as `_likely`, but with new file pages counted in full.

    >>> _at_most(_Basis(100, 80, 50), Statm(resident_bytes=155, shared_bytes=60))
    125
    """
    new_bytes = max(0, now.shared_bytes - basis.shared_bytes)
    return _likely(basis, now) + new_bytes - int(new_bytes * basis.shared_share)
