"""The smallest budget in which a workflow can run, for its plan.

Where it is to run, it is measured: the first pass is begun with next to no memory in a temporary folder, loads its
stages as the run will, and says what it would need. No document is read. Elsewhere, and for data that is only imagined,
the shipped table tells.
"""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tamis.backends.loading_cap import without_cap
from tamis.backends.local import LocalExecutor
from tamis.cli.plan.trial import without_profiles
from tamis.dedup.planning import least_budget
from tamis.engine.run.budget.shares import budget_to_name
from tamis.errors import BudgetError, TamisError
from tamis.forecast import shipped_table
from tamis.pipeline import Pipeline

if TYPE_CHECKING:
    from tamis.curation import Curation

_NEXT_TO_NOTHING = 1_000_000  # bytes: every pass refuses them


class Smallest(NamedTuple):
    n_bytes: int
    is_measured: bool  # or from the shipped table, which knows no models

    def among(self, other: Smallest) -> Smallest:
        """Return the smallest budget that is sufficient for both."""
        return Smallest(max(self.n_bytes, other.n_bytes), self.is_measured and other.is_measured)


def smallest_of_dedup(workflow: Any, may_try: bool) -> Smallest:
    """Return the smallest budget of a deduplication; `may_try`: whether it may be tried on this machine's data."""
    first_pass = _tried(lambda folder: _begin_dedup(workflow, folder)) if may_try else _from_table()
    return first_pass.among(_solving())


def smallest_of_curation(curation: Curation, may_try: bool) -> Smallest:
    """Return the smallest budget of a curation, as `smallest_of_dedup` does for a deduplication.

    Stages after the last deduplication are loaded by the last pass alone, which is started as well. Models are
    loaded, and downloaded if they are missing.
    """
    plan = curation.plan()
    smallest = (
        _tried(lambda folder: curation.into(folder).run(progress=False, **_settings())) if may_try else _from_table()
    )
    last = [curation.steps[i] for i in plan.last]
    if may_try and plan.groups and last:
        from tamis.stages.text.io.writer import JsonlWriter

        smallest = smallest.among(_tried(lambda folder: _begin_stages([curation.source(), *last, JsonlWriter(folder)])))
    return smallest.among(_solving()) if plan.groups else smallest


def _solving() -> Smallest:
    return Smallest(least_budget(), True)


def _tried(begin: Callable[[str], object]) -> Smallest:
    """Return the smallest budget that `begin`, called with a folder, reports.

    Return the value of the table if it fails for another reason, which the run will report.
    """
    with tempfile.TemporaryDirectory(prefix="tamis-plan-") as folder, without_profiles(), without_cap():
        try:
            begin(os.path.join(folder, "out"))
        except BudgetError as exc:
            return Smallest(exc.smallest_bytes, True) if exc.smallest_bytes else _from_table()
        except TamisError:
            pass
    return _from_table()


def _begin_dedup(workflow: Any, folder: str) -> None:
    trial = copy.copy(workflow)
    trial.output_path = folder
    trial.run(progress=False, **_settings())


def _begin_stages(stages: list[Any]) -> None:
    Pipeline("planned", stages=copy.deepcopy(stages)).execute(LocalExecutor(report=False), **_settings())


def _settings() -> dict[str, Any]:
    return {"memory": _NEXT_TO_NOTHING, "count_caller": True, "alerts": "off"}


def _from_table() -> Smallest:
    return Smallest(budget_to_name(shipped_table.FIXED_BYTES, shipped_table.WORKER_BYTES), False)
