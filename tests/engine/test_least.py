"""A model that cannot fit is refused before it is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tamis import Pipeline, ProcessingStage
from tamis.engine.run.budget.shares import refuse_too_large
from tamis.errors import BudgetError
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter


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
