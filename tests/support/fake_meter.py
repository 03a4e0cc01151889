"""Pretended processes, for tests of code that counts processes (memory/pss_sum.py)."""

from __future__ import annotations

from dataclasses import dataclass, field

from tamis.memory.meter import Pid, Statm


@dataclass
class FakeProcess:
    """One pretended process. Change the fields as the test goes on."""

    anon_bytes: int = 0
    shared_bytes: int = 0
    peak_bytes: int = 0
    parent: int = 0
    n_faults: int = 0


@dataclass
class FakeMeter:
    processes: dict[int, FakeProcess] = field(default_factory=dict)

    def statm(self, pid: Pid = "self") -> Statm | None:
        found = self.processes.get(int(pid))
        return None if found is None else Statm(found.anon_bytes + found.shared_bytes, found.shared_bytes)

    def peak_rss(self, pid: Pid = "self") -> int | None:
        found = self.processes.get(int(pid))
        return None if found is None else max(found.peak_bytes, found.anon_bytes + found.shared_bytes)

    def pss(self, pid: Pid = "self") -> int | None:
        found = self.processes.get(int(pid))
        return None if found is None else found.anon_bytes + found.shared_bytes

    def n_faults(self, pid: Pid = "self") -> int | None:
        found = self.processes.get(int(pid))
        return None if found is None else found.n_faults
