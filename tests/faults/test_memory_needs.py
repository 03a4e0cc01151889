"""Stages whose need of memory does not depend on the documents: fewer workers, large partitions, or a refusal with the number."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fault_harness import assert_conserved, document, events, execute, lines_of, write_lines
from fault_stages import FixedCost, Model

from tamis.errors import BudgetError


@pytest.mark.parametrize("stage", [FixedCost(), Model()], ids=["in every call", "in setup"])
def test_what_fits_once_runs_in_one_worker_and_few_files(tmp_path: Path, stage: FixedCost | Model) -> None:
    lines = [document(i, 200) for i in range(4000)]
    write_lines(tmp_path / "in" / "a.jsonl", lines)
    result = execute(tmp_path / "in", tmp_path / "out", [stage], settings={"memory": "420MB"})
    assert_conserved(result)
    assert (result.exit_code, lines_of(tmp_path / "out")) == (0, lines)
    assert result.counters["memory_failures"] <= 4
    assert result.counters["kills"] == 0
    assert result.n_files <= 6
    assert result.peak_bytes <= 420_000_000


def test_what_no_worker_can_get_ends_the_run_at_once_and_is_named(tmp_path: Path) -> None:
    write_lines(tmp_path / "in" / "a.jsonl", [document(i) for i in range(20_000)])
    with pytest.raises(
        BudgetError, match=r"stage 'fixed_cost' needs more memory .* it asked for 5 GB at once"
    ) as caught:
        execute(tmp_path / "in", tmp_path / "out", [FixedCost(5_000_000_000)])
    named = re.search(r"--memory (\d+)MB", str(caught.value))
    assert named is not None
    assert 5_500 < int(named[1]) < 7_000
    failed = [data for kind, data in events(tmp_path / "out") if kind == "failed"]
    assert 0 < len(failed) < 30
    assert {data["stage"] for data in failed} == {"fixed_cost"}
    assert not lines_of(tmp_path / "out")
