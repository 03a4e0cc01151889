"""The step of the solver that decides which documents with equal texts are removed. How groups are found: groups.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tamis.dedup.exact.groups import exact_duplicates
from tamis.dedup.range_passes.found import add_equal

if TYPE_CHECKING:
    from tamis.dedup.solver import SolverRun
    from tamis.dedup.solver_task import DecideEqual


def decide_equal(step: DecideEqual, run: SolverRun) -> None:
    """Decide which documents with equal texts are removed, from their keys or from what workers found in ranges of them."""
    records = run.open_records()
    found = run.decisions(records)
    if step.ranges is not None:
        add_equal(step.ranges.equal, found)
    else:
        exact_duplicates(records, found, run.room_bytes, run.progress("equal texts"))
    run.conclude(records, found, {}, step.keep_by, step.facts)
