"""Stages that take memory around the limit of their process: bounded, named, and nothing left behind. All kinds: test_budget_matrix.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fault_harness import assert_conserved, documents, events, execute, lines_of, make_pipeline, write_lines
from hostile_stages import Hostile

from tamis import LocalExecutor
from tamis.errors import Incomplete
from tamis.memory import lookout, meter
from tamis.memory.budget import describe_limits

needs_gate = pytest.mark.skipif("gate" not in describe_limits()["enforcement"], reason="no seccomp notifications here")


@needs_gate
def test_a_mapped_file_that_does_not_fit_is_refused_with_the_number(tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.touch()
    os.truncate(big, 800_000_000)
    write_lines(tmp_path / "in" / "a.jsonl", documents(1))
    pipeline = make_pipeline(tmp_path / "in", tmp_path / "out", [Hostile("mapped_file", path=str(big))])
    with pytest.raises(Incomplete, match=r"'hostile'.* asked for 800 MB at once.*--memory 1\d\d\dMB or more"):
        pipeline.run(LocalExecutor(), memory="300MB")
    refused = [data for kind, data in events(tmp_path / "out") if kind == "refused"]
    assert refused
    assert refused[0]["n_bytes"] == 800_000_000


def test_daemons_of_a_stage_end_with_the_run(tmp_path: Path) -> None:
    write_lines(tmp_path / "in" / "a.jsonl", documents(3))
    result = execute(tmp_path / "in", tmp_path / "out", [Hostile("daemons", mb=60)], settings={"memory": "420MB"})
    assert_conserved(result)
    assert len(lines_of(tmp_path / "out")) == 3
    assert result.peak_bytes <= 420_000_000
    left = [int(name) for name in os.listdir("/proc") if name.isdigit() and lookout.is_marked(int(name))]
    assert [pid for pid in left if meter.is_alive(pid)] == []
