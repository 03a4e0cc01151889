"""A worker and all below it under one cap: who may still allocate how much.

Decides only; processes are reached through `ProcessLimits`.

RLIMIT_DATA is per process and inherited, so eight children could take eight caps. Here the limits of a family are set
so that what they have allocated, what they may still allocate and what they have mapped add up to the cap, at every
moment: what is left is divided evenly, anew with every child that comes or goes. A fork counts in full what its parent
has allocated: it may write to all of it, and so copy it. Mappings that are shared or of a file count in full, from the
moment they are asked for (seccomp_gate.py). Only what is copied of the forking server's own pages is not seen here, and
is watched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from tamis._dataclasses import dataclass

_CROWDED = 0.8
_SPARE_BYTES = 1 << 20  # in addition to what is requested
_MAX_SAMPLES = 3  # a child that was not seen by then has come and gone
_MAX_REFUSED = 64  # members of whom it is remembered what they did not get
LEAST_BYTES = 2_000_000  # with less for each a fork is refused: it could do nothing


class ProcessLimits(Protocol):
    def data(self, pid: int) -> int | None:
        """Return private writable bytes (VmData); None for a process that is gone."""

    def limit(self, pid: int, n_bytes: int) -> None:
        """Set its RLIMIT_DATA."""


@dataclass
class _ExpectedChild:
    """A child that may be forked now and has not been seen."""

    parent: int
    start_bytes: int  # what it has from its parent and does not count
    reserved_bytes: int  # what it has and counts, and what it may allocate beyond that
    n_samples: int = 0


@dataclass
class _Promise:
    """A member may have so much: it counts until it has it, or does not come for it."""

    data_bytes: int
    n_samples: int = 0


class FamilyMemory(NamedTuple):
    """Memory that a family took since its last grant, as it counts in the cap. The worker itself knows none of it."""

    peak_bytes: int = 0  # at most, beyond what it had at the grant; 0 if the worker was alone and had mapped nothing
    held_bytes: int = 0  # mapped, and by children: now
    requested_bytes: int = 0  # and was not given, when it lacked most


@dataclass
class _Refusals:
    """Refusals of one member: their number, and the largest."""

    n: int
    n_bytes: int


class ProcessFamily:
    """`pid` and `base_bytes` are the worker's: what it had allocated before it was given any work is not counted."""

    def __init__(self, pid: int, base_bytes: int, limits: ProcessLimits) -> None:
        self.pid, self.cap_bytes, self.mapped_bytes = pid, 0, 0
        self._limits = limits
        self._starts = {pid: base_bytes}
        self._limit_of: dict[int, int] = {}  # limits as they were set
        self._expected: list[_ExpectedChild] = []
        self._promised: dict[int, _Promise] = {}
        self._new: set[int] = set()  # on their way through an exec: what they have allocated so far will be gone
        self._before_bytes = self._worst_bytes = self._requested_bytes = 0  # since the last grant
        self._was_alone = True
        self._refused: dict[int, _Refusals] = {}

    @property
    def pids(self) -> set[int]:
        return set(self._starts)

    @property
    def has_children(self) -> bool:
        return len(self._starts) + len(self._expected) > 1

    def is_crowded(self, pid: int) -> bool:
        """Return True if a member has almost used up its limit."""
        data, limit, start = self._limits.data(pid), self._limit_of.get(pid), self._starts.get(pid, 0)
        return data is not None and limit is not None and data - start > _CROWDED * (limit - start)

    @property
    def account(self) -> FamilyMemory:
        """Note the end of a unit, whether it was done or failed."""
        if self._was_alone:
            return FamilyMemory(requested_bytes=self._requested_bytes)
        data = self._data()
        grown = data.get(self.pid, 0) - self._starts[self.pid]
        peak = max(0, self._worst_bytes - self._before_bytes)
        return FamilyMemory(peak, max(0, self._used_bytes(data) - grown), self._requested_bytes)

    def refuse(self, pid: int, n_bytes: int) -> None:
        """Record that a member was refused `n_bytes`, and estimate from it what all members lack.

        Each refused member may request this much at once, and so may its siblings, which had no time to. (A child
        of a pool that has failed takes the next piece of work and fails again, instead of another child.)
        """
        refusals = self._refused.setdefault(pid, _Refusals(0, 0))
        refusals.n, refusals.n_bytes = refusals.n + 1, max(refusals.n_bytes, n_bytes)
        if len(self._refused) > _MAX_REFUSED:
            del self._refused[next(iter(self._refused))]
        children = [r for member, r in self._refused.items() if member != self.pid]
        n_likely = min(len(self._starts) - 1, sum(r.n for r in children))
        likely = max(sum(r.n_bytes for r in children), n_likely * max((r.n_bytes for r in children), default=0))
        worker_refusals = self._refused.get(self.pid)
        self._note_need(likely + (worker_refusals.n_bytes if worker_refusals is not None else 0))

    def _note_need(self, requested_bytes: int = 0) -> None:
        used = self._used_bytes(self._data())
        if used + requested_bytes > self._worst_bytes + self._requested_bytes:
            self._worst_bytes, self._requested_bytes = used, requested_bytes

    def allocate(self, pid: int, n_bytes: int) -> bool:
        """Return True if a member can allocate `n_bytes` at once.

        If necessary, the other members get less until it has.
        """
        data = self._data()
        if pid not in data or data[pid] + n_bytes <= self._limit_of.get(pid, 0):
            return True
        if self._free_bytes(data) < n_bytes + _SPARE_BYTES or not self.has_children:
            return False
        self._promised[pid] = _Promise(data[pid] + n_bytes + _SPARE_BYTES)
        self.share()
        return True

    def grant(self, cap_bytes: int) -> None:
        """Start a new unit of work of the worker, with this cap."""
        self.cap_bytes = cap_bytes
        self.share()
        self._refused = {}
        self._was_alone = not self.has_children and not self.mapped_bytes
        self._before_bytes = self._worst_bytes = self._used_bytes(self._data())
        self._requested_bytes = 0

    def share(self) -> None:
        """Divide what is left among all members."""
        if not self.has_children:
            self._set(self.pid, self._starts[self.pid] + self.cap_bytes - self.mapped_bytes)
            return
        for raising in (False, True):  # reductions first: in between no share may be held twice
            data = self._data()
            each = self._free_bytes(data) // max(1, len(data))
            for pid, n_bytes in data.items():
                if (n_bytes + each >= self._limit_of.get(pid, 0)) is raising:
                    self._set(pid, n_bytes + each)

    def map(self, n_bytes: int) -> bool:
        """Return True if `n_bytes` more may be mapped; if so, they count from now on."""
        self.mapped_bytes += n_bytes
        self.share()
        data = self._data()
        if self._free_bytes(data) >= 0 and all(n <= self._limit_of.get(pid, n) for pid, n in data.items()):
            self._was_alone = False
            self._note_need()
            return True
        self.mapped_bytes -= n_bytes
        self.share()
        return False

    def note_mapped(self, n_bytes: int) -> None:
        """Set the number of bytes that are actually mapped, after something was unmapped."""
        if n_bytes != self.mapped_bytes:
            self.mapped_bytes = n_bytes
            self.share()

    def fork(self, pid: int, copies: bool = True) -> bool:
        """Return True if a member may fork.

        Its child will have the same limit as the member and, with `copies`, may write to its memory.
        """
        self._promised.pop(pid, None)  # it would be its child's as well
        data = self._data()
        data_bytes = data.get(pid, 0)
        start = min(data_bytes, self._starts.get(pid, 0)) if copies else data_bytes
        each = (self._free_bytes(data) - (data_bytes - start)) // (len(data) + 1)
        self._was_alone = False
        if each < LEAST_BYTES:
            self.refuse(pid, (data_bytes - start + LEAST_BYTES) * max(1, len(data) - 1))  # it may want as many again
            return False
        self._expected.append(_ExpectedChild(pid, start, data_bytes - start + each))
        self.share()
        return True

    def exec(self, pid: int) -> None:
        """Record that a member becomes another program, which starts with nothing."""
        if pid == self.pid:
            return
        if pid not in self._starts:
            self._expected = self._expected[1:]
        self._new.add(pid)
        self._starts[pid] = 0
        self._limit_of[pid] = 0
        self.share()

    def _take_start(self, parent: int) -> int:
        """Return what a new child of `parent` began with: its expected fork's, which is expected no more."""
        fork = next((c for c in self._expected if c.parent == parent), None)
        if fork is None:
            return self._starts[self.pid]
        self._expected.remove(fork)
        return fork.start_bytes

    def update(self, parents: Mapping[int, int]) -> None:
        """Update the members of the family: each pid with its parent, the worker included."""
        had_children = self.has_children
        starts = {pid: start for pid, start in self._starts.items() if pid in parents or pid == self.pid}
        for pid, parent in parents.items():
            if pid not in starts:
                starts[pid] = self._take_start(parent)
        for child in self._expected:
            child.n_samples += 1
        for promise in self._promised.values():
            promise.n_samples += 1
        self._expected = [c for c in self._expected if c.n_samples < _MAX_SAMPLES]
        self._promised = {i: p for i, p in self._promised.items() if p.n_samples < _MAX_SAMPLES and i in starts}
        self._starts = starts
        self._limit_of = {pid: n for pid, n in self._limit_of.items() if pid in starts}
        self._new &= starts.keys()
        if had_children or self.has_children:
            self._was_alone = False
            self.share()
            self._note_need()

    # -- inside -------------------------------------------------------------------------------------------------------
    def _data(self) -> dict[int, int]:
        sizes: dict[int, int] = {}
        for pid in self._starts:
            n_bytes = self._limits.data(pid)
            if n_bytes is None:
                continue
            if pid in self._new and n_bytes > self._limit_of.get(pid, 0):
                n_bytes = 0  # still the old program
            if pid in self._promised:
                n_bytes = max(n_bytes, self._promised[pid].data_bytes)
            sizes[pid] = n_bytes
        return sizes

    def _free_bytes(self, data: Mapping[int, int]) -> int:
        return self.cap_bytes - self._used_bytes(data) - sum(child.reserved_bytes for child in self._expected)

    def _used_bytes(self, data: Mapping[int, int]) -> int:
        grown = 0
        for pid, n_bytes in data.items():
            since = n_bytes - self._starts[pid]
            grown += since if pid == self.pid else max(0, since)
        return self.mapped_bytes + grown

    def _set(self, pid: int, n_bytes: int) -> None:
        n_bytes = max(0, n_bytes)
        if self._limit_of.get(pid) != n_bytes:
            self._limit_of[pid] = n_bytes
            self._limits.limit(pid, n_bytes)
