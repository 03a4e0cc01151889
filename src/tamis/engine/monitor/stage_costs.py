"""What each stage has done and cost since the start of a run: documents, bytes, seconds, CPU, highest memory. Pure.

Added up from the reports of workers, which tell it partition by partition: the books (documents and seconds), and
in addition to them what is no part of the books (bytes, CPU, peak).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

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
    """`before`: the books of earlier attempts.

    `known`: what the run database remembers of them in addition to the books.
    """

    def __init__(
        self, labels: Sequence[str], before: Ledger, known: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        self._stages: dict[str, StageCost] = {}
        for label in labels:
            self._stage(label)
        for book in before.stages:
            self._count(book)
            told = (known or {}).get(book.name, {})
            cost = self._stage(book.name)
            cost.in_bytes += int(told.get("in_bytes") or 0)
            cost.cpu_s += float(told.get("cpu_s") or 0.0)
            cost.peak_bytes = max(cost.peak_bytes, int(told.get("peak_bytes") or 0))

    def add(self, report: Done) -> None:
        """Add the costs of a finished unit."""
        for book in report.ledger.stages:
            self._count(book)
        for use in report.stages:
            cost = self._stage(use.label)
            cost.in_bytes += use.in_bytes
            cost.cpu_s += use.cpu_s
            cost.peak_bytes = max(cost.peak_bytes, use.peak_bytes)

    def rows(self) -> list[dict[str, Any]]:
        return [asdict(cost) for cost in self._stages.values()]

    @property
    def n_duplicates(self) -> int:
        """Documents that stages which remove duplicates have dropped."""
        return sum(c.n_dropped for c in self._stages.values() if removes_duplicates(c.stage))

    def _stage(self, label: str) -> StageCost:
        if label not in self._stages:
            self._stages[label] = StageCost(label, len(self._stages))
        return self._stages[label]

    def _count(self, book: StageBook) -> None:
        cost = self._stage(book.name)
        cost.n_in += book.into.n
        cost.n_out += book.out.n + book.derived.n
        cost.n_dropped += sum(tally.n for tally in book.dropped.values())
        cost.n_quarantined += book.quarantined.n
        cost.seconds += book.seconds


def removes_duplicates(label: str) -> bool:
    """Return True if the label is of a stage that removes duplicates.

    >>> [removes_duplicates(n) for n in ("remove_duplicates", "remove_listed_duplicates#2", "duplicate_lines")]
    [True, True, False]
    """
    return label.startswith("remove_") and "duplicates" in label
