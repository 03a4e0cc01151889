"""One partition for each file, where a reader is given no size, and bounded memory all the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.stages.base import ProcessingStage
from tamis.stages.file_partitioning import FilePartitioningStage
from tamis.stages.text.io.reader import DocumentReader, JsonlReader, ParquetReader
from tamis.stages.text.io.reader.jsonl import JsonlReaderStage
from tamis.stages.text.io.writer import JsonlWriter
from tamis.tasks import DocumentBatch


class CountTasks(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Adds the number of documents of its task, and the names of its files."""

    name = "count_tasks"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        frame = task.data
        frame["n"], frame["files"] = len(frame), " ".join(Path(p).name for p in task._metadata["source_files"])
        return DocumentBatch(task.dataset_name, frame, task._stage_perf, task._metadata)


def jsonl(folder: Path, sizes: list[int]) -> str:
    folder.mkdir()
    for i, size in enumerate(sizes):
        lines = [json.dumps({"id": f"{i}-{k}", "text": "word " * 20}) + "\n" for k in range(size)]
        (folder / f"{i}.jsonl").write_text("".join(lines))
    return str(folder)


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(path.glob("*.jsonl")) for line in file.read_text().splitlines()]


def run(source: Any, out: Path, **settings: Any) -> list[Any]:
    pipeline = Pipeline("apart", stages=[source, CountTasks(), JsonlWriter(str(out))])
    return pipeline.run(InProcessExecutor(), progress=False, **settings)


def test_each_file_is_a_task_and_an_output_file(tmp_path: Path) -> None:
    sizes = [3, 20_000, 1, 50_000, 7]  # files of 2 and 6 MB, which partitions of an unknown job would not reach
    tasks = run(JsonlReader(jsonl(tmp_path / "in", sizes)), tmp_path / "out")
    assert len(tasks) == len(list((tmp_path / "out").glob("*.jsonl"))) == 5
    assert {(row["files"], row["n"]) for row in rows(tmp_path / "out")} == {
        (f"{i}.jsonl", size) for i, size in enumerate(sizes)
    }


def test_parquet_files_and_stages_of_their_own_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for i in range(3):
        pd.DataFrame({"text": ["a"] * (i + 1)}).to_parquet(tmp_path / f"in/{i}.parquet")
    tasks = run(ParquetReader(str(tmp_path / "in")), tmp_path / "out")
    assert len(tasks) == 3
    assert sorted(row["n"] for row in rows(tmp_path / "out")) == [1, 2, 2, 3, 3, 3]
    folder = jsonl(tmp_path / "lines", [2, 2])
    stages = [FilePartitioningStage(folder), JsonlReaderStage(), JsonlWriter(str(tmp_path / "two"))]
    assert len(Pipeline("two", stages=stages).run(InProcessExecutor(), progress=False)) == 2


def test_a_file_that_does_not_fit_is_cut(tmp_path: Path) -> None:
    folder = jsonl(tmp_path / "in", [400_000, 5])  # 48 MB
    tasks = run(JsonlReader(folder), tmp_path / "out", memory="400MB")
    assert len(tasks) > 2
    assert len(rows(tmp_path / "out")) == 400_005


@pytest.mark.parametrize("how", ["blocksize", "setting", "any format"])
def test_sizes_group_files(tmp_path: Path, how: str) -> None:
    folder = jsonl(tmp_path / "in", [2, 2, 2])
    if how == "blocksize":
        tasks = run(JsonlReader(folder, blocksize="1MB"), tmp_path / "out")
    elif how == "setting":
        tasks = run(JsonlReader(folder), tmp_path / "out", blocksize="1MB")
    else:
        tasks = run(DocumentReader(folder), tmp_path / "out")
    assert len(tasks) == 1
