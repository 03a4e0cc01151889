"""The smallest budget is one number: whoever names it, whatever runs beside, and it is enough."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
from command import SRC, tamis
from outside import measured

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


def test_below_it_runs_refuse_and_at_it_they_work(place: Path) -> None:
    copy = ("copy", "--set", f"input={place}/in", "--set", f"output={place}/out")
    refused = tamis("run", *copy, "--memory", "50MB")
    smallest = named(refused.stderr)
    assert refused.exit_code == 4
    again = tamis(
        "run", *copy, "--memory", f"{smallest - 7}MB"
    )  # a step, what two measurements may differ by, and more
    assert again.exit_code == 4
    assert abs(named(again.stderr) - smallest) <= 5  # at a border of two steps it may be the next one
    command = [sys.executable, "-m", "tamis.cli.start", "run", *copy, "--memory", f"{smallest}MB", "--json"]
    seen = measured(command, PYTHONPATH=os.pathsep.join([str(SRC), *sys.path]))
    about = json.loads(seen.output)
    assert (about["exit_code"], about["n_written"]) == (0, 20_000)
    assert seen.peak_bytes <= smallest * MB
    planned = tamis("plan", *copy, "--memory", f"{smallest - 7}MB", "--json")
    plan = json.loads(planned.stdout)
    assert not plan["fits"]
    assert abs(plan["smallest_budget_bytes"] - smallest * MB) <= 5 * MB
