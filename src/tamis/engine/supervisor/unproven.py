"""Stages that have failed on every document so far: is the mistake in the stage, or in the data? Pure.

A stage that failed on all documents of a unit, also one by one, is tried again in another process, one by one from the
start: an exception may have left it in a state in which it fails on anything. If it fails on all of them there, too,
the unit waits here while that stage has not passed any document. Once it has, the units are tried again, and what fails
is quarantined. If instead the stage fails on `MAX_FAILED` documents (`MAX_FAILED_SLOW` where each takes `SLOW_S`, so
that a run does not take a minute to end), or nothing else is left to do, the stage is to blame and the run ends:
nothing has been committed for it, so that the corrected stage starts from the beginning.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from tamis.engine.activity import in_words
from tamis.engine.messages import Failure
from tamis.engine.supervisor.retry_policy import describe_failure
from tamis.engine.supervisor.state import FatalKind
from tamis.engine.units import Unit

MAX_FAILED, MAX_FAILED_SLOW = 20, 3
SLOW_S = 0.5


class Blame(NamedTuple):
    """Why a run ends: its stage fails on everything, or refuses how it was called."""

    kind: FatalKind
    reason: str


class UnprovenStages:
    """The stages that have passed a document, and the units that wait for one that has not."""

    def __init__(self, proven: set[str], is_enabled: bool) -> None:
        """Track stages. `proven`: labels of those that have passed documents, also in earlier runs; added to."""
        self.proven, self._is_enabled = proven, is_enabled
        self._waiting: list[tuple[str, Unit]] = []
        self._n_failed: Counter[str] = Counter()  # documents, by stage
        self._seconds: dict[str, float] = defaultdict(float)  # of the attempts on these documents
        self._first: dict[str, Failure] = {}

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def add(self, unit: Unit, report: Failure) -> bool:
        """Return True if the unit waits from now on, because its stage has failed on everything so far.

        After the first failure it does not wait, but is marked for a trial of its stage.
        """
        if not self._is_enabled or not report.n_failed_alone or report.stage in self.proven:
            unit.trial = ""
            return False
        if unit.trial != report.stage:
            unit.trial = report.stage
            return False
        self._waiting.append((report.stage, unit))
        self._n_failed[report.stage] += report.n_failed_alone
        self._seconds[report.stage] += report.seconds
        self._first.setdefault(report.stage, report)
        return True

    def prove(self, stages: Iterable[str]) -> list[Unit]:
        """Record that stages have passed documents; return the units that waited for that."""
        self.proven.update(stages)
        released = [replace(unit, trial="") for stage, unit in self._waiting if stage in self.proven]
        self._waiting = [(stage, unit) for stage, unit in self._waiting if stage not in self.proven]
        return released

    def blame(self, is_last: bool = False) -> Blame | None:
        """Return the stage that is to blame, or None while that is open. `is_last`: nothing else is left to do."""
        for stage, n_failed in self._n_failed.items():
            enough = MAX_FAILED_SLOW if self._seconds[stage] >= SLOW_S * n_failed else MAX_FAILED
            if stage not in self.proven and (is_last or n_failed >= enough):
                documents = "the first document" if n_failed == 1 else f"each of the first {n_failed} documents"
                first = self._first[stage]
                kind = FatalKind.USAGE if first.is_usage else FatalKind.STAGE
                return Blame(kind, f"{in_words(stage)} fails on {documents}: {describe_failure(first, label=False)}")
        return None
