"""The smallest budget in which a workflow can run, for its plan.

Where it is to run, it is measured: the first pass is begun with next to no memory in a temporary folder, loads its
stages as the run will, and says what it would need. No document is read. Elsewhere, and for data that is only imagined,
the shipped table gives.
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


class SmallestBudget(NamedTuple):
    n_bytes: int
    is_measured: bool  # or from the shipped table, which knows no models

    def max_with(self, other: SmallestBudget) -> SmallestBudget:
        """Return the smallest budget that is sufficient for both."""
        return SmallestBudget(max(self.n_bytes, other.n_bytes), self.is_measured and other.is_measured)


def smallest_of_dedup(workflow: Any, may_run_trials: bool) -> SmallestBudget:
    """Return the smallest budget of a deduplication. `may_run_trials`: on this machine's data."""
    first_pass = _refused_budget(lambda folder: _begin_dedup(workflow, folder)) if may_run_trials else _from_table()
    return first_pass.max_with(_solver_budget())


def smallest_of_curation(curation: Curation, may_run_trials: bool) -> SmallestBudget:
    """Return the smallest budget of a curation, as `smallest_of_dedup` does for a deduplication.

    Stages after the last deduplication are loaded by the last pass alone, which is started as well. Models are
    loaded, and downloaded if they are missing.
    """
    plan = curation.plan()
    smallest = (
        _refused_budget(lambda folder: curation.into(folder).run(progress=False, **_settings()))
        if may_run_trials
        else _from_table()
    )
    last = [curation.steps[i] for i in plan.last]
    if may_run_trials and plan.groups and last:
        from tamis.stages.text.io.writer import JsonlWriter

        smallest = smallest.max_with(
            _refused_budget(lambda folder: _begin_stages([curation.source(), *last, JsonlWriter(folder)]))
        )
    return smallest.max_with(_solver_budget()) if plan.groups else smallest


def _solver_budget() -> SmallestBudget:
    return SmallestBudget(least_budget(), True)


def _refused_budget(begin: Callable[[str], object]) -> SmallestBudget:
    """Return the smallest budget that `begin`, called with a folder, reports.

    Return the value of the table if it fails for another reason, which the run will report.
    """
    with tempfile.TemporaryDirectory(prefix="tamis-plan-") as folder, without_profiles(), without_cap():
        try:
            begin(os.path.join(folder, "out"))
        except BudgetError as exc:
            return SmallestBudget(exc.smallest_bytes, True) if exc.smallest_bytes else _from_table()
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


def _from_table() -> SmallestBudget:
    return SmallestBudget(budget_to_name(shipped_table.FIXED_BYTES, shipped_table.WORKER_BYTES), False)
