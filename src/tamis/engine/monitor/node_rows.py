"""The nodes of a run on a cluster, one row each: who is there, what it uses, how many partitions it has done."""

from __future__ import annotations

from collections import Counter

from tamis.engine.supervisor.supervisor import Supervisor

Row = tuple[int, str, float, int, int, int, int, int, int, int, int]


class NodeRows:
    """Keeps what a node that is gone was; a run on one machine has none."""

    def __init__(self) -> None:
        self._last: dict[int, Row] = {}
        self._earlier: Counter[int] = Counter()  # units that nodes did under supervisors before this one
        self._seen: dict[int, int] = {}

    def sample(self, at: float, s: Supervisor) -> list[Row]:
        """Return the rows of the table `nodes` that have changed or may have."""
        rows: list[Row] = []
        for node in s.pool.nodes.values():
            if not node.name:
                continue
            if node.n_units < self._seen.get(node.id, 0):  # another supervisor counts from 0
                self._earlier[node.id] += self._seen[node.id]
            self._seen[node.id] = node.n_units
            before = self._last.get(node.id)
            peak = max(node.used_bytes, before[8] if before is not None else 0)
            rows.append(
                (
                    node.id,
                    node.name,
                    at,
                    1,
                    len(node.workers),
                    node.n_busy,
                    self._earlier[node.id] + node.n_units,
                    node.used_bytes,
                    peak,
                    node.config.budget_bytes,
                    int(node.pressure.level),
                )
            )
        for number, row in self._last.items():
            if number not in s.pool.nodes and row[3]:
                rows.append((*row[:3], 0, 0, 0, row[6], 0, *row[8:]))
        self._last.update({row[0]: row for row in rows})
        return rows
