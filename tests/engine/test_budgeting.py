"""The budget, shared out."""

from __future__ import annotations

import os

import pytest

from tamis.engine.budgeting import NAMED_MARGIN, Shares, share_budget, smallest_budget
from tamis.engine.job import Job, Segment
from tamis.engine.settings import Record, RunSettings
from tamis.errors import BudgetError
from tamis.stages.resources import Resources

MB = 1_000_000


def shares(budget: int, record: Record | None = None, memory_gb: float = 0.0, **settings: int) -> Shares:
    job = Job("p", None, None, [], None, [Segment(0, 0, Resources(memory_gb=memory_gb))])
    return share_budget(budget, 60 * MB, 30 * MB, 90 * MB, RunSettings(**settings), record or Record(), job)  # type: ignore[arg-type]


def test_the_smallest_budget_is_named_and_works() -> None:
    with pytest.raises(
        BudgetError, match=r"a memory budget of 50 MB is too small.*the smallest that works here is (\d+)MB"
    ) as caught:
        shares(50 * MB)
    smallest = int(str(caught.value).split("works here is ")[1].split("MB")[0]) * MB
    assert shares(smallest).n_workers == 1
    # What is named has a margin: measured sizes fall while other processes share the libraries.
    with pytest.raises(BudgetError):
        shares(int(smallest / NAMED_MARGIN) - 2 * MB)


def test_caps_and_workers_stay_inside_the_usable_part() -> None:
    for budget in (300 * MB, 1000 * MB, 8000 * MB):
        made = shares(budget, workers=4)
        assert made.fixed_bytes + made.pool_bytes <= budget * 0.88 + 1
        assert 1 <= made.n_workers <= 4
        assert made.pool_bytes // made.n_workers - made.worker_bytes >= 24 * MB


def test_fewer_workers_than_asked_is_recorded_with_its_reason() -> None:
    record = Record()
    made = shares(250 * MB, record, workers=64)
    entry = next(e for e in record.entries if e["name"] == "workers")
    assert (entry["value"], entry["chosen_by"]) == (made.n_workers, "adaptation")
    record = Record()
    shares(100_000 * MB, record, workers=3)
    assert [(e["value"], e["chosen_by"]) for e in record.entries if e["name"] == "workers"] == [(3, "user")]


def test_workers_follow_the_cores_when_nobody_says() -> None:
    assert shares(1_000_000 * MB).n_workers == len(os.sched_getaffinity(0))


def test_a_stage_that_asks_for_more_than_there_is_ends_early() -> None:
    with pytest.raises(BudgetError, match=r"a stage asks for 2 GB of memory .*the smallest that works is \d+MB"):
        shares(1000 * MB, memory_gb=2.0)


def test_smallest_budget_is_whole_megabytes() -> None:
    assert smallest_budget(100 * MB, 20 * MB) == 164 * MB
