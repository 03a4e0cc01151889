"""The smallest budget that refusals and plans name: a run works within it, and clearly smaller ones are refused.

Private memory repeats to some hundred kB, more on a busy machine, and budgets count in steps: where a figure lies next
to the border of two steps, two measurements may name neighbouring steps. So numbers are compared to one step.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from tamis.engine.run.budget.shares import STEP_BYTES
from tests.support.command import SRC, tamis
from tests.support.outside import measured

MB = 1_000_000

pytestmark = pytest.mark.own_processes
STEP_MB = STEP_BYTES // MB


def named_mb(message: str) -> int:
    match = re.search(r"the smallest that works here is (\d+)MB", message)
    assert match is not None, message
    return int(match[1])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("smallest")
    (folder / "in").mkdir()
    lines = (json.dumps({"id": i, "text": f"document {i} of many " * (i % 50)}) for i in range(20_000))
    (folder / "in" / "a.jsonl").write_text("\n".join(lines))
    return folder


def run_within(copy: tuple[str, ...], budget_mb: int) -> None:
    """Run and check that everything is written, within the budget as measured from outside."""
    command = [sys.executable, "-m", "tamis.cli.start", "run", *copy, "--memory", f"{budget_mb}MB", "--fresh", "--json"]
    usage = measured(command, PYTHONPATH=os.pathsep.join([str(SRC), *sys.path]))
    report = json.loads(usage.output)
    assert (report["exit_code"], report["n_written"]) == (0, 20_000)
    assert usage.peak_bytes <= budget_mb * MB


def test_smaller_budgets_are_refused_and_the_named_one_works(corpus: Path) -> None:
    copy = ("copy", "--set", f"input={corpus}/in", "--set", f"output={corpus}/out")
    refused = tamis("run", *copy, "--memory", "50MB")
    assert refused.exit_code == 4
    smallest = named_mb(refused.stderr)
    below = f"{smallest - 2 * STEP_MB - 1}MB"
    refused = tamis("run", *copy, "--memory", below)
    assert refused.exit_code == 4
    assert abs(named_mb(refused.stderr) - smallest) <= STEP_MB
    run_within(copy, smallest)
    plan = json.loads(tamis("plan", *copy, "--memory", below, "--json").stdout)
    assert plan["fits"] is False
    assert abs(plan["smallest_budget_bytes"] / MB - smallest) <= STEP_MB
