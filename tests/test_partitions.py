"""Which documents a stage gets together: numbers of files, several partitions in one call, formats by reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.errors import RunConflict
from tamis.stages.base import ProcessingStage
from tamis.stages.text.io.reader import JsonlReader, ParquetReader
from tamis.stages.text.io.writer import JsonlWriter
from tamis.tasks import DocumentBatch


class Sizes(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Notes how many documents its task has, and how many tasks it got together."""

    name = "sizes"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        raise NotImplementedError

    def process_batch(self, tasks: list[DocumentBatch]) -> list[DocumentBatch]:
        for task in tasks:
            task.data["n"], task.data["together"] = len(task.data), len(tasks)
        return tasks


@pytest.fixture(scope="module")
def ten(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ten")
    for i in range(10):
        (folder / f"{i}.jsonl").write_text(json.dumps({"text": f"x{i}"}) + "\n")
    return folder


def run(*stages: Any) -> list[Any]:
    return Pipeline("p", stages=list(stages)).run(InProcessExecutor())


@pytest.mark.parametrize(("files", "expected"), [(3, [3, 3, 3, 1]), (10, [10]), (4, [4, 4, 2])])
def test_files_per_partition_is_exact(ten: Path, files: int, expected: list[int]) -> None:
    assert [b.num_items for b in run(JsonlReader(str(ten), files_per_partition=files), Sizes())] == expected


def test_several_partitions_in_one_call(ten: Path) -> None:
    found = pd.concat([b.data for b in run(JsonlReader(str(ten), files_per_partition=2), Sizes().with_(batch_size=3))])
    assert found["n"].tolist() == [2] * 10
    assert found["together"].tolist() == [3] * 6 + [2] * 4


def test_the_reader_decides_the_format(tmp_path: Path) -> None:
    pd.DataFrame({"text": ["a", "b"]}).to_parquet(tmp_path / "a.pq")
    (batch,) = run(ParquetReader(str(tmp_path), file_extensions=[".pq"]))
    assert batch.data["text"].tolist() == ["a", "b"]
    (tmp_path / "b.txt").write_text('{"text": "c"}\n')
    (batch,) = run(JsonlReader(str(tmp_path), file_extensions=[".txt"]))
    assert batch.data["text"].tolist() == ["c"]


def test_a_checkpoint_path_next_to_a_writer_says_where_the_run_is(ten: Path, tmp_path: Path) -> None:
    stages = [JsonlReader(str(ten)), JsonlWriter(str(tmp_path / "out"))]
    Pipeline("p", stages=stages).run(InProcessExecutor(), checkpoint_path=str(tmp_path / "check"))
    told = json.loads((tmp_path / "check" / "tamis-run.json").read_text())
    assert Path(told["run_dir"], "manifest.json").exists()
    stages.insert(1, Sizes())
    with pytest.raises(RunConflict, match=r"start over with fresh=True \(--fresh\)"):
        run(*stages)
