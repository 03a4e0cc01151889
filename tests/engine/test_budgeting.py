"""The budget, shared out."""

from __future__ import annotations

import os

import pytest

from tamis.engine.job import Job, Segment
from tamis.engine.run.budget.shares import (
    SPREAD_BYTES,
    STEP_BYTES,
    Server,
    Shares,
    least_budget,
    share_budget,
    smallest_budget,
)
from tamis.engine.run.settings import Record, RunSettings
from tamis.errors import BudgetError
from tamis.stages.resources import Resources

MB = 1_000_000


def shares(budget: int, record: Record | None = None, memory_gb: float = 0.0, **settings: int) -> Shares:
    job = Job("p", None, None, [], None, [Segment(0, 0, Resources(memory_gb=memory_gb))])
    return share_budget(budget, Server(60 * MB, 30 * MB, 90 * MB), RunSettings(**settings), record or Record(), job)  # type: ignore[arg-type]


def test_the_smallest_budget_is_named_and_works() -> None:
    with pytest.raises(
        BudgetError, match=r"a memory budget of 50 MB is too small.*the smallest that works here is (\d+)MB"
    ) as caught:
        shares(50 * MB)
    smallest = int(str(caught.value).split("works here is ")[1].split("MB")[0]) * MB
    assert shares(smallest).n_workers == 1
    with pytest.raises(BudgetError, match=f"works here is {smallest // MB}MB"):
        shares(smallest - STEP_BYTES - SPREAD_BYTES)


def test_loading_counts_too() -> None:
    assert smallest_budget(50 * MB, 10 * MB, 90 * MB) == 95 * MB  # (50 + 10 + 20) / 0.88
    assert smallest_budget(50 * MB, 10 * MB, 99 * MB) == 100 * MB


def test_what_repeats_to_a_tenth_of_a_megabyte_gives_one_number() -> None:
    assert {smallest_budget(81 * MB + i * 10_000, 10 * MB) % STEP_BYTES for i in range(20)} == {0}
    assert len({smallest_budget(81 * MB + i * 10_000, 10 * MB) for i in range(20)}) == 1


def test_a_named_budget_is_enough_when_it_is_measured_again() -> None:
    """At a border of two steps, too: the second measurement may be a little more than the first."""
    for i in range(0, 6_000, 100):
        measured = 120 * MB + i * 1000
        assert least_budget(0, 0, measured + SPREAD_BYTES) <= smallest_budget(0, 0, measured)


def test_the_command_line_counts_what_it_may_come_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for every command, unless it holds more (very many files)."""
    job = Job("p", None, None, [], None, [Segment(0, 0, Resources())])

    def fixed(own_bytes: int) -> int:
        monkeypatch.setattr("tamis.memory.meter.own_bytes", lambda: own_bytes)
        settings = RunSettings(count_caller=True)
        return share_budget(500 * MB, Server(60 * MB, 30 * MB, 90 * MB), settings, Record(), job).fixed_bytes

    assert fixed(10 * MB) == fixed(20 * MB)
    assert fixed(100 * MB) > fixed(50 * MB) > fixed(30 * MB)


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
