"""Totals of each stage since the start of a run: documents, bytes, seconds, CPU, highest memory. Pure.

Documents and seconds are those of the books; bytes, CPU and memory are added up from the reports of workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tamis._dataclasses import dataclass
from tamis.engine.ledger import Ledger, StageBook
from tamis.engine.messages import Done


@dataclass
class StageCost:
    """`peak_bytes`: the most that one partition took in this stage, above what the worker held before it."""

    stage: str
    position: int
    n_in: int = 0
    n_out: int = 0
    n_dropped: int = 0
    n_quarantined: int = 0
    in_bytes: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    peak_bytes: int = 0


class StageCosts:
    """Costs of all stages. `labels`: of the stages in order; `known`: what earlier attempts took, from the database.

    Counts and seconds come from the books, so that they agree with the totals of the same moment; bytes, CPU and
    memory, which no book has, are added up from the reports of workers.
    """

    def __init__(self, labels: Sequence[str], known: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._positions = {label: i for i, label in enumerate(dict.fromkeys(labels))}
        self._uses: dict[str, StageCost] = {}
        for label, row in (known or {}).items():
            use = self._use(label)
            use.in_bytes, use.cpu_s = int(row.get("in_bytes") or 0), float(row.get("cpu_s") or 0.0)
            use.peak_bytes = int(row.get("peak_bytes") or 0)

    def add(self, report: Done) -> None:
        """Add the costs of a finished unit."""
        for reported in report.stages:
            use = self._use(reported.label)
            use.in_bytes += reported.in_bytes
            use.cpu_s += reported.cpu_s
            use.peak_bytes = max(use.peak_bytes, reported.peak_bytes)

    def stages(self, books: Iterable[Ledger]) -> list[StageCost]:
        """Return what each stage has done, by these books, and what it cost; stages that only books know come last."""
        costs: dict[str, StageCost] = {label: StageCost(label, i) for label, i in self._positions.items()}
        for ledger in books:
            for book in ledger.stages:
                _count(costs.setdefault(book.name, StageCost(book.name, len(costs))), book)
        for label, cost in costs.items():
            if (use := self._uses.get(label)) is not None:
                cost.in_bytes, cost.cpu_s, cost.peak_bytes = use.in_bytes, use.cpu_s, use.peak_bytes
        return list(costs.values())

    def _use(self, label: str) -> StageCost:
        return self._uses.setdefault(label, StageCost(label, 0))


def _count(cost: StageCost, book: StageBook) -> None:
    cost.n_in += book.into.n
    cost.n_out += book.out.n + book.derived.n
    cost.n_dropped += sum(tally.n for tally in book.dropped.values())
    cost.n_quarantined += book.quarantined.n
    cost.seconds += book.seconds
