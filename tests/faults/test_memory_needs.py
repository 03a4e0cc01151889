"""Stages that need memory whatever the documents: fewer workers, large partitions, or a refusal with the number."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tamis.errors import BudgetError, Incomplete
from tests.faults.fault_harness import assert_conserved, document, events, execute, lines_of, quarantine, write_lines
from tests.faults.fault_stages import FixedCost, Model, WordList


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


def test_size_alone_decides_what_is_quarantined_and_the_rest_is_named_with_its_size(tmp_path: Path) -> None:
    """One line above max_record, and one below of which no worker of this budget can make a list of words."""
    (tmp_path / "in").mkdir()
    small = [b'{"text":"a"}', b'{"text":"b"}', b'{"text":"c"}']
    with (tmp_path / "in" / "a.jsonl").open("wb") as out:
        for line, n_bytes in zip(small, (20_000_000, 15_000_000, 0), strict=True):
            out.write(line + b"\n")
            out.write((b'{"text":"' + b"ab cd " * (n_bytes // 6) + b'"}\n') if n_bytes else b"")
    with pytest.raises(Incomplete) as caught:
        execute(tmp_path / "in", tmp_path / "out", [WordList()], settings={"memory": "300MB", "max_record": "18MB"})
    assert re.search(
        r"one record of .*a.jsonl \(at 20000036, 15000011 bytes\) does not fit the memory budget even alone, in "
        r"stage 'word_list': .*"
        r"set max_record below its size to quarantine it, or run again with --memory \d+MB or more",
        str(caught.value),
    )
    assert [line[:12] for line in lines_of(tmp_path / "out")] == [b'{"text":"a",', b'{"text":"b",', b'{"text":"c",']
    (entry,) = quarantine(tmp_path / "out")
    assert (entry["offset"], entry["length"], entry["reason"]) == (13, 20_000_009, "larger than max_record")
