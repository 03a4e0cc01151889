"""The smallest budget is one number: whoever names it, whatever runs beside, and it is enough."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.support.command import SRC, tamis
from tests.support.outside import measured

MB = 1_000_000


def named(text: str) -> int:
    found = re.search(r"the smallest that works here is (\d+)MB", text)
    assert found is not None, text
    return int(found[1])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("smallest")
    (folder / "in").mkdir()
    lines = (json.dumps({"id": i, "text": f"document {i} of many " * (i % 50)}) for i in range(20_000))
    (folder / "in" / "a.jsonl").write_text("\n".join(lines))
    return folder


def run_within(copy: tuple[str, ...], budget_mb: int) -> None:
    """Everything is written, and somebody outside never sees more than the budget."""
    command = [sys.executable, "-m", "tamis.cli.start", "run", *copy, "--memory", f"{budget_mb}MB", "--fresh", "--json"]
    seen = measured(command, PYTHONPATH=os.pathsep.join([str(SRC), *sys.path]))
    about = json.loads(seen.output)
    assert (about["exit_code"], about["n_written"]) == (0, 20_000)
    assert seen.peak_bytes <= budget_mb * MB


def test_below_it_runs_refuse_and_at_it_they_work(place: Path) -> None:
    copy = ("copy", "--set", f"input={place}/in", "--set", f"output={place}/out")
    refused = tamis("run", *copy, "--memory", "50MB")
    smallest = named(refused.stderr)
    assert refused.exit_code == 4
    again = tamis("run", *copy, "--memory", f"{smallest - 1}MB")
    if again.exit_code == 0:
        # What is measured lies at a border of two steps: then it is enough, and the step below is not.
        run_within(copy, smallest - 1)
        again = tamis("run", *copy, "--memory", f"{smallest - 6}MB")
    assert (again.exit_code, named(again.stderr)) == (4, smallest)
    run_within(copy, smallest)
    planned = tamis("plan", *copy, "--memory", f"{smallest - 1}MB", "--json")
    plan = json.loads(planned.stdout)
    assert (plan["smallest_budget_bytes"], plan["fits"]) == (smallest * MB, False)
