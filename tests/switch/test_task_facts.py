"""What tasks say of themselves: where they come from, their ids, and what each stage took."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tamis import InProcessExecutor, Pipeline
from tamis.stages.base import ProcessingStage
from tamis.stages.resources import Resources
from tamis.stages.text.filters import ScoreFilter
from tamis.stages.text.filters.heuristic import WordCountFilter
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter
from tamis.tasks import DocumentBatch

SEEN: list[tuple[str, str, list[str]]] = []


class Look(ProcessingStage[DocumentBatch, DocumentBatch]):
    name = "look"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        SEEN.append((task.dataset_name, task.task_id, [Path(p).name for p in task._metadata["source_files"]]))
        return task


class LookAgain(Look):
    """In a segment of its own, whose documents come from another worker."""

    name = "look_again"
    resources = Resources(cpus=2.0)


def source(folder: Path) -> str:
    (folder / "Stories").mkdir()
    for name in "abc":
        lines = [json.dumps({"text": f"{name} " * (i + 1)}) + "\n" for i in range(4)]
        (folder / "Stories" / f"{name}.jsonl").write_text("".join(lines))
    return str(folder / "Stories")


def test_a_task_names_its_files_its_dataset_and_itself(tmp_path: Path) -> None:
    SEEN.clear()
    stages: list[Any] = [JsonlReader(source(tmp_path), files_per_partition=1), Look(), LookAgain()]
    Pipeline("facts", stages=[*stages, JsonlWriter(str(tmp_path / "out"))]).run(InProcessExecutor(), progress=False)
    assert sorted(files for _, _, files in SEEN) == [[f"{n}.jsonl"] for n in "aabbcc"]
    assert {dataset for dataset, _, _ in SEEN} == {"stories"}
    assert len({task_id for _, task_id, _ in SEEN}) == 3


def test_what_lists_reads_and_writes_has_figures_too(tmp_path: Path) -> None:
    stages: list[Any] = [
        JsonlReader(source(tmp_path), files_per_partition=1),
        ScoreFilter(WordCountFilter(min_words=2)),
        JsonlWriter(str(tmp_path / "out")),
    ]
    tasks = Pipeline("facts", stages=stages).run(InProcessExecutor(), progress=False)
    assert len(tasks) == 3
    names = [perf.stage_name for perf in tasks[0]._stage_perf]
    assert (names[0], names[1], names[-1]) == ("file_partitioning", "jsonl_reader", "jsonl_writer")
    for task in tasks:
        assert [perf.stage_name for perf in task._stage_perf] == names
    totals = [sum(task._stage_perf[i].num_items_processed for task in tasks) for i in range(len(names))]
    assert totals == [3, 12, 12, 9]
    assert sum(task._stage_perf[1].input_data_size_mb for task in tasks) > 0
