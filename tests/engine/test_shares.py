"""The budget, shared out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tamis import Pipeline, ProcessingStage
from tamis.engine.job import Job, Segment
from tamis.engine.run.budget.shares import (
    LIBRARY_BYTES,
    SPREAD_BYTES,
    STEP_BYTES,
    WORKER_OWN_BYTES,
    BudgetShares,
    ServerMemory,
    budget_to_name,
    refuse_too_large,
    share_budget,
    smallest_budget,
)
from tamis.engine.run.settings import RunSettings, SettingsLog
from tamis.errors import BudgetError
from tamis.stages.resources import Resources
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter

MB = 1_000_000


def shares(budget: int, record: SettingsLog | None = None, memory_gb: float = 0.0, **settings: int) -> BudgetShares:
    job = Job("p", None, None, [], None, [Segment(0, 0, Resources(memory_gb=memory_gb))])
    return share_budget(
        budget, ServerMemory(60 * MB, 30 * MB, 90 * MB), RunSettings(**settings), record or SettingsLog(), job
    )  # type: ignore[arg-type]


def test_the_smallest_budget_is_named_and_works() -> None:
    with pytest.raises(
        BudgetError, match=r"a memory budget of 50 MB is too small.*the smallest that works here is (\d+)MB"
    ) as caught:
        shares(50 * MB)
    smallest = int(str(caught.value).split("works here is ")[1].split("MB")[0]) * MB
    assert shares(smallest).n_workers == 1
    with pytest.raises(BudgetError, match=f"works here is {smallest // MB}MB"):
        shares(smallest - 1)


def test_loading_counts_too() -> None:
    assert smallest_budget(50 * MB, 10 * MB, 90 * MB) == 95 * MB  # (50 + 10 + 20) / 0.88
    assert smallest_budget(50 * MB, 10 * MB, 100 * MB) == 100 * MB


def test_what_repeats_to_a_tenth_of_a_megabyte_gives_one_number() -> None:
    assert {smallest_budget(81 * MB + i * 10_000, 10 * MB) % STEP_BYTES for i in range(20)} == {0}
    assert len({smallest_budget(81 * MB + i * 10_000, 10 * MB) for i in range(20)}) == 1


def server(own_bytes: int, peak_bytes: int = 0) -> ServerMemory:
    """Return the forking server as measured, without other processes."""
    return ServerMemory(own_bytes, 0, peak_bytes)


def named(measured: ServerMemory) -> int:
    """Return the number in the refusal of a budget that is much too small."""
    job = Job("p", None, None, [], None, [Segment(0, 0, Resources())])
    with pytest.raises(BudgetError) as caught:
        share_budget(MB, measured, RunSettings(), SettingsLog(), job)
    return int(str(caught.value).split("works here is ")[1].split("MB")[0]) * MB


@pytest.mark.parametrize("loads", [False, True])
def test_a_named_budget_is_enough_when_it_is_measured_again(loads: bool) -> None:
    """At a border of two steps, too: the second measurement may be a little more than the first."""
    job = Job("p", None, None, [], None, [Segment(0, 0, Resources())])
    for i in range(0, 6_000, 100):
        first = 120 * MB + i * 1000
        budget = named(server(0, first) if loads else server(first))
        for again in (first - SPREAD_BYTES, first, first + SPREAD_BYTES):
            measured = server(0, again) if loads else server(again)
            assert share_budget(budget, measured, RunSettings(), SettingsLog(), job).n_workers == 1
            assert named(measured) - budget in (-STEP_BYTES, 0, STEP_BYTES)


def test_below_the_named_budget_is_refused_with_its_number_or_fits_what_was_measured() -> None:
    job = Job("p", None, None, [], None, [Segment(0, 0, Resources())])
    n_accepted = 0
    for i in range(0, 5_000, 50):
        measured = server(0, 150 * MB + i * 1000)
        budget = named(measured)
        fits_below = measured.peak_bytes <= budget - STEP_BYTES  # within SPREAD_BYTES of a border
        if fits_below:
            n_accepted += 1
            assert share_budget(budget - 1, measured, RunSettings(), SettingsLog(), job).n_workers == 1
        for less in (budget - STEP_BYTES - 1, budget - 1)[: 2 - fits_below]:
            with pytest.raises(BudgetError, match=f"works here is {budget // MB}MB"):
                share_budget(less, measured, RunSettings(), SettingsLog(), job)
    assert n_accepted == 10  # of 100


def test_messages_and_plans_name_the_same_number() -> None:
    assert named(server(60 * MB)) == budget_to_name(60 * MB + LIBRARY_BYTES, WORKER_OWN_BYTES)


def test_the_command_line_counts_what_it_may_come_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for every command, unless it holds more (very many files)."""
    job = Job("p", None, None, [], None, [Segment(0, 0, Resources())])

    def fixed(own_bytes: int) -> int:
        monkeypatch.setattr("tamis.memory.meter.own_bytes", lambda: own_bytes)
        settings = RunSettings(count_caller=True)
        return share_budget(500 * MB, ServerMemory(60 * MB, 30 * MB, 90 * MB), settings, SettingsLog(), job).fixed_bytes

    assert fixed(10 * MB) == fixed(20 * MB)
    assert fixed(100 * MB) > fixed(50 * MB) > fixed(30 * MB)


def test_caps_and_workers_stay_inside_the_usable_part() -> None:
    for budget in (300 * MB, 1000 * MB, 8000 * MB):
        made = shares(budget, workers=4)
        assert made.fixed_bytes + made.pool_bytes <= budget * 0.88 + 1
        assert 1 <= made.n_workers <= 4
        assert made.pool_bytes // made.n_workers - made.worker_bytes >= 24 * MB


def test_fewer_workers_than_requested_is_recorded_with_its_reason() -> None:
    record = SettingsLog()
    made = shares(250 * MB, record, workers=64)
    entry = next(e for e in record.entries if e["name"] == "workers")
    assert (entry["value"], entry["chosen_by"]) == (made.n_workers, "adaptation")
    record = SettingsLog()
    shares(100_000 * MB, record, workers=3)
    assert [(e["value"], e["chosen_by"]) for e in record.entries if e["name"] == "workers"] == [(3, "user")]


def test_workers_follow_the_cores_by_default() -> None:
    assert shares(1_000_000 * MB).n_workers == len(os.sched_getaffinity(0))


def test_a_stage_that_asks_for_more_than_there_is_ends_early() -> None:
    with pytest.raises(BudgetError, match=r"a stage asks for 2 GB of memory .*the smallest that works is \d+MB"):
        shares(1000 * MB, memory_gb=2.0)


class Huge(ProcessingStage[Any, Any]):
    name = "huge"

    def __init__(self, marker: str) -> None:
        self.marker = marker

    def least_bytes(self) -> int:
        return 14_000_000_000

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        Path(self.marker).touch()

    def process(self, task: Any) -> Any:
        return task


def test_the_refusal_names_the_stage_and_a_budget(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n')
    stages = [
        JsonlReader(str(tmp_path / "in.jsonl")),
        Huge(str(tmp_path / "marker")),
        JsonlWriter(str(tmp_path / "out")),
    ]
    with pytest.raises(
        BudgetError, match=r"loading stage 'huge' alone takes 14.* the smallest that may work is 16365MB"
    ):
        Pipeline("p", stages=stages).execute(memory="2GB")
    assert not (tmp_path / "marker").exists()


def test_what_fits_is_left_to_be_measured() -> None:
    refuse_too_large(1_000_000_000, [("a", 0), ("b", 800_000_000)])
    with pytest.raises(BudgetError):
        refuse_too_large(1_000_000_000, [("a", 100_000_000), ("b", 800_000_000)])
