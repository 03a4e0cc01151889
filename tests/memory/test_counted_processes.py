"""Processes beside a run that count in its budget."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tamis.engine.job import make_job
from tamis.engine.run.budget.shares import ServerMemory, share_budget
from tamis.engine.run.settings import RunSettings, SettingsLog
from tamis.memory import counted_processes
from tamis.stages.text.io.reader import JsonlReader


@pytest.fixture
def companion() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        time.sleep(0.5)
        try:
            yield process.pid
        finally:
            counted_processes.leave(process.pid)
            process.communicate(b"\n")


def test_they_are_reserved_and_measured(companion: int) -> None:
    assert (counted_processes.pids(), counted_processes.reserved_bytes(), counted_processes.pss_bytes()) == ([], 0, 0)
    counted_processes.join(companion, 32_000_000)
    assert counted_processes.pids() == [companion]
    assert counted_processes.reserved_bytes() == 32_000_000
    assert 1_000_000 < counted_processes.pss_bytes() < 32_000_000
    counted_processes.join(companion, 1000)
    assert counted_processes.reserved_bytes() > 1_000_000
    counted_processes.leave(companion)
    counted_processes.leave(companion)
    assert (counted_processes.pids(), counted_processes.reserved_bytes()) == ([], 0)


def test_one_that_is_gone_keeps_its_place_until_it_leaves() -> None:
    counted_processes.join(2**22 + 1, 5_000_000)
    try:
        assert (counted_processes.reserved_bytes(), counted_processes.pss_bytes()) == (5_000_000, 0)
    finally:
        counted_processes.leave(2**22 + 1)


@pytest.mark.parametrize(("counted", "expected"), [(True, 200_000_000), (False, 0)])
def test_the_budget_leaves_them_their_share(companion: int, counted: bool, expected: int) -> None:
    job = make_job("j", JsonlReader("in").decompose())
    settings = RunSettings(memory="8GB", count_caller=counted)
    fixed = []
    for reserved in (0, 200_000_000):
        counted_processes.leave(companion)
        if reserved:
            counted_processes.join(companion, reserved)
        fixed.append(
            share_budget(
                8_000_000_000, ServerMemory(100_000_000, 90_000_000, 120_000_000), settings, SettingsLog(), job
            ).fixed_bytes
        )
    assert fixed[1] - fixed[0] == pytest.approx(expected, abs=20_000_000)
