"""The processes of a run, one by one: the supervisor, the servers that workers are forked from, the workers.

Servers are found as the processes between us and the workers. The memory of a worker is what the executor measured (its
children included); CPU seconds include ended processes, through the parents that waited for them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tamis.memory import counted_processes, meter

_MAX_DEPTH = 8
_PSS_EVERY = 5  # looks: PSS of the server takes 2 ms, everything else 0.1 ms


class ProcessTree:
    """`count_caller`: the CPU time of the calling process counts from its start (it does nothing but this run)."""

    def __init__(self, count_caller: bool) -> None:
        self._self = os.getpid()
        self._before_s = 0.0 if count_caller else sum(meter.cpu_s(self._self) or (0.0, 0.0))
        self._servers: list[int] = []
        self._peaks: dict[int, int] = {}
        self._workers: set[int] = set()
        self._shared: dict[int, int] = {}  # PSS less anonymous memory, as of the last sample
        self._age = 0
        self.pids: list[int] = [self._self]
        self.cpu_s = 0.0
        self.server_bytes = self.supervisor_bytes = 0

    @property
    def n_processes(self) -> int:
        return len(self.pids)

    def sample(self, workers: Mapping[int, int], used: Mapping[int, tuple[int | None, int]]) -> list[dict[str, Any]]:
        """Return the rows of the table `processes`. `workers`: number -> pid; `used`: number -> (segment, bytes)."""
        self._find_servers(list(workers.values()))
        self._age += 1
        if self._age >= _PSS_EVERY or set(workers.values()) != self._workers:  # who is there decides who shares what
            self._age, self._workers, self._shared = 0, set(workers.values()), {}
        rows = [self._row(self._self, "supervisor", self._pss(self._self))]
        rows += [self._row(pid, counted_processes.title_of(pid), self._pss(pid)) for pid in counted_processes.pids()]
        servers = [self._row(pid, "server", self._pss(pid)) for pid in self._servers]
        self.supervisor_bytes = rows[0]["pss_bytes"]
        self.server_bytes = sum(row["pss_bytes"] for row in servers)
        rows += servers
        for worker, pid in workers.items():
            segment, n_bytes = used.get(worker, (None, 0))
            rows.append(self._row(pid, "worker", n_bytes) | {"worker": worker, "segment": segment})
        rows = [row for row in rows if row["cpu_s"] is not None]
        self.pids = [row["pid"] for row in rows]
        self._peaks = {pid: self._peaks[pid] for pid in self.pids}
        self.cpu_s = max(self.cpu_s, sum(row.pop("tree_cpu_s") for row in rows) - self._before_s)
        return rows

    def _pss(self, pid: int) -> int:
        """Return the PSS: sampled periodically, adjusted by the anonymous memory in between."""
        anon_bytes = meter.rss_anon(pid)
        if anon_bytes is None:
            return 0
        if pid not in self._shared:
            pss_bytes = meter.pss(pid)
            self._shared[pid] = 0 if pss_bytes is None else pss_bytes - anon_bytes
        return max(0, anon_bytes + self._shared[pid])

    def _row(self, pid: int, role: str, pss_bytes: int) -> dict[str, Any]:
        status, cpu = meter.status(pid) or {}, meter.cpu_s(pid)
        # A worker's counter is reset with every partition: the highest that was seen is kept here.
        self._peaks[pid] = max(self._peaks.get(pid, 0), status.get("VmHWM", 0))
        return {
            "pid": pid,
            "role": role,
            "anon_bytes": status.get("RssAnon"),
            "pss_bytes": pss_bytes,
            "peak_bytes": self._peaks[pid],
            "cpu_s": None if cpu is None else round(cpu[0], 2),
            "tree_cpu_s": 0.0 if cpu is None else sum(cpu),
        }

    def _find_servers(self, workers: list[int]) -> None:
        """Find the servers again if one ended or none is known."""
        if not workers or (self._servers and all(meter.is_alive(pid) for pid in self._servers)):
            return
        pids: list[int] = []
        pid = meter.parent(workers[0])
        while pid is not None and pid not in (0, 1, self._self) and len(pids) < _MAX_DEPTH:
            pids.append(pid)
            pid = meter.parent(pid)
        self._servers = pids[::-1] if pid == self._self else []
