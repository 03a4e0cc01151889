"""Executors that others write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tamis import Pipeline
from tamis.backends.base import BaseExecutor
from tamis.errors import UsageError
from tamis.stages.text.io import JsonlReader, JsonlWriter


class Elsewhere(BaseExecutor):
    """Hands stages to something else, and makes no workers."""

    def execute(self, stages: list[Any], initial_tasks: Any = None) -> list[Any]:
        return [stage.name for stage in stages]


def test_an_executor_with_an_execute_of_its_own_needs_nothing_else() -> None:
    assert Elsewhere().execute([JsonlReader("in"), JsonlWriter("out")]) == ["jsonl_reader", "jsonl_writer"]


def test_one_that_is_to_run_a_pipeline_and_makes_no_workers_learns_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n')
    pipeline = Pipeline("copy", stages=[JsonlReader(str(tmp_path / "in.jsonl")), JsonlWriter(str(tmp_path / "out"))])
    with pytest.raises(
        UsageError, match=r"Elsewhere cannot run a pipeline: it has no make_workers\(job, .* LocalExecutor"
    ):
        pipeline.run(Elsewhere(), progress=False)
