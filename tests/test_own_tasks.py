"""Pipelines without a reader: tasks and sources of one's own, end to end; and what is said of stages that fail."""

from __future__ import annotations

import json
import platform
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.errors import Incomplete, PipelineError, RunConflict, TamisError, UsageError
from tamis.pipeline import WorkflowRunResult
from tamis.pipeline.pipeline import assign_root_task_ids
from tamis.stages.base import ProcessingStage
from tamis.stages.resources import Resources
from tamis.stages.text.filters import ScoreFilter
from tamis.stages.text.filters.heuristic import WordCountFilter
from tamis.stages.text.io.reader import JsonlReader, JsonlReaderStage
from tamis.stages.text.io.writer import JsonlWriter
from tamis.tasks import DocumentBatch, EmptyTask, FailedTask, FileGroupTask, NoneTask, SentinelTask, Task
from tamis.tasks.utils import TaskPerfUtils


@dataclass
class Sheet(Task[list[str]]):
    """A task of our own."""

    data: list[str] = field(default_factory=list)

    @property
    def num_items(self) -> int:
        return len(self.data)


class Sheets(ProcessingStage[EmptyTask, Sheet]):
    name = "sheets"
    is_source_stage = True

    def process(self, task: EmptyTask) -> list[Sheet]:
        return [Sheet("d", [f"{i}-{k}" for k in range(3)]) for i in range(4)]


class Loud(ProcessingStage[Sheet, Sheet]):
    name = "loud"
    batch_size = 3

    def process_batch(self, tasks: list[Sheet]) -> list[Sheet]:
        for task in tasks:
            task.data = [f"{text}! ({len(tasks)})" for text in task.data]
        return tasks

    def process(self, task: Sheet) -> Sheet:
        raise NotImplementedError


class Documents(ProcessingStage[Sheet, DocumentBatch]):
    name = "documents"

    def process(self, task: Sheet) -> DocumentBatch:
        return DocumentBatch(task.dataset_name, pd.DataFrame({"text": task.data}))


class Fails(ProcessingStage[Any, Any]):
    name = "fails"

    def __init__(self, on: str = "") -> None:
        self.on = on

    def process(self, task: Any) -> Any:
        if not isinstance(task, DocumentBatch) or any(self.on in t for t in task.data["text"]):
            raise ValueError("no such thing")
        return task


class Names(ProcessingStage[EmptyTask, FileGroupTask]):
    name = "names"

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def process(self, task: EmptyTask) -> list[FileGroupTask]:
        return [FileGroupTask("d", [path]) for path in self.paths]


def run(*stages: Any, **more: Any) -> list[Any]:
    return Pipeline("p", stages=list(stages)).run(InProcessExecutor(), **more)


def corpus(folder: Path, n: int = 30) -> str:
    folder.mkdir()
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": f"word {i}", "id": i}) + "\n" for i in range(n)))
    return str(folder)


def test_a_source_and_tasks_of_ones_own_come_back() -> None:
    found = run(Sheets(), Loud())
    assert [t.data[0] for t in found] == ["0-0! (3)", "1-0! (3)", "2-0! (3)", "3-0! (1)"]
    assert all(type(t) is Sheet and t.dataset_name == "d" for t in found)


def test_worker_processes_give_the_same() -> None:
    found = Pipeline("p", stages=[Sheets(), Loud()]).run(memory="400MB")
    assert [t.data[0] for t in found] == ["0-0! (3)", "1-0! (3)", "2-0! (3)", "3-0! (1)"]
    assert type(found[0]) is Sheet


def test_tasks_of_ones_own_become_documents_and_files(tmp_path: Path) -> None:
    (batch,) = run(Sheets(), Documents())
    assert (batch.num_items, batch.data["text"].tolist()[:4]) == (12, ["0-0", "0-1", "0-2", "1-0"])
    written = run(Sheets(), Loud(), Documents(), JsonlWriter(str(tmp_path / "out")))
    lines = [json.loads(line) for t in written for p in t.data for line in Path(p).read_text().splitlines()]
    assert len(lines) == 12
    assert lines[0] == {"text": "0-0! (3)"}


def test_initial_tasks_of_ones_own() -> None:
    found = run(Loud(), initial_tasks=[Sheet("d", [str(i)]) for i in range(5)])
    assert [t.data for t in found] == [["0! (3)"], ["1! (3)"], ["2! (3)"], ["3! (2)"], ["4! (2)"]]
    with pytest.raises(UsageError, match="expected tasks, got str"):
        run(Loud(), initial_tasks=["x"])
    with pytest.raises(UsageError, match="Sheet among documents or files"):
        run(Loud(), initial_tasks=[FileGroupTask("d", [__file__]), Sheet()])


def test_a_stage_that_names_files_before_a_reader(tmp_path: Path) -> None:
    source = corpus(tmp_path / "in", 5)
    (batch,) = run(Names([f"{source}/a.jsonl"]), JsonlReaderStage(), Documents2())
    assert batch.data["id"].tolist() == [0, 1, 2, 3, 4]


class Files(ProcessingStage[DocumentBatch, FileGroupTask]):
    """Makes files of its own, on a GPU."""

    name = "files"

    def __init__(self, path: str) -> None:
        self.path, self.resources = path, Resources(gpus=1.0)

    def process(self, task: DocumentBatch) -> FileGroupTask:
        return FileGroupTask("d", [self.path])


def test_files_of_a_stage_on_a_gpu_reach_the_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    source = corpus(tmp_path / "in", 5)
    made = f"{source}/a.jsonl"
    found = run(JsonlReader(source), Files(made), JsonlWriter(str(tmp_path / "out")))
    assert [t.data for t in found] == [[made]]
    with pytest.raises(TamisError, match="FileGroupTask cannot be passed on to another worker; give documents"):
        run(JsonlReader(source), Files(made), Documents2(), JsonlWriter(str(tmp_path / "out2")))


class Documents2(ProcessingStage[DocumentBatch, DocumentBatch]):
    name = "same"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task


def test_tasks_that_a_writer_cannot_write_are_reported(tmp_path: Path) -> None:
    with pytest.raises(TamisError, match="Sheet cannot be written; give documents"):
        run(Sheets(), JsonlWriter(str(tmp_path / "out")))


def test_tasks_of_another_program_are_not_read_back(tmp_path: Path) -> None:
    run(Sheets(), run_dir=str(tmp_path))
    (path,) = tmp_path.glob("*.tasks")
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)
    with pytest.raises(RunConflict, match=r"another program made.*fresh=True"):
        run(Sheets(), run_dir=str(tmp_path))


@pytest.mark.parametrize("more", [{}, {"initial_tasks": [EmptyTask()]}])
def test_a_stage_that_raises_is_never_finished(more: dict[str, Any]) -> None:
    expected = r"stage 'fails': ValueError: no such thing \[test_own_tasks.py, line \d+, in process: raise ValueError"
    with pytest.raises(TamisError, match=expected):
        run(Fails(), fail_fast=False, **more)


def test_the_first_exception_is_reported_with_its_document(tmp_path: Path) -> None:
    source = corpus(tmp_path / "in")
    expected = r"fails on 2\d of \d+ documents so far.*ValueError: no such thing on one record of .*a.jsonl \(at \d+"
    with pytest.raises(Incomplete, match=expected):
        run(JsonlReader(source), Fails(), fail_fast=False)
    few = corpus(tmp_path / "few", 3)
    with pytest.raises(Incomplete, match=r"not one document.*First: stage 'fails': ValueError"):
        run(JsonlReader(few), Fails(), fail_fast=False)


def test_documents_in_quarantine_are_reported_where_the_run_is_complete(tmp_path: Path) -> None:
    source = corpus(tmp_path / "in")
    with pytest.warns(UserWarning, match=r"p: 1 document is in quarantine \(.*first: stage 'fails'.*\(at \d+"):
        (batch,) = run(JsonlReader(source), Fails("word 17"), fail_fast=False)
    assert batch.num_items == 29


class Doubles(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Returns its batch twice, and holds what it was given."""

    name = "doubles"

    def __init__(self, held: Any = None) -> None:
        self.held = held

    def process(self, task: DocumentBatch) -> list[DocumentBatch]:
        return [task, task]


def test_a_batch_that_is_returned_twice_is_written_twice(tmp_path: Path) -> None:
    pipeline = Pipeline("p", stages=[JsonlReader(corpus(tmp_path / "in")), Doubles(), JsonlWriter(str(tmp_path / "o"))])
    pipeline.run(InProcessExecutor())
    assert pipeline.last_result is not None
    ledger = pipeline.last_result.ledger
    assert (ledger.problems(), ledger.records.n, ledger.written.n) == ([], 30, 60)


def test_a_stage_that_cannot_be_sent_to_workers_is_named(tmp_path: Path) -> None:
    stages = [JsonlReader(corpus(tmp_path / "in")), Doubles(threading.Lock()), JsonlWriter(str(tmp_path / "o"))]
    with pytest.raises(PipelineError, match=r"stage 'doubles'.*cannot be sent to worker processes.*setup\(\)"):
        Pipeline("p", stages=stages).run(memory="512MB", progress=False)


def test_a_field_that_no_document_has_stops_the_run(tmp_path: Path) -> None:
    source, out = corpus(tmp_path / "in"), tmp_path / "out"
    stages = [JsonlReader(source), ScoreFilter(WordCountFilter(1), "txt"), JsonlWriter(str(out))]
    with pytest.raises(
        PipelineError, match=r"'word_count' reads the field 'txt', which no document has; they have \['text', 'id'\]"
    ):
        run(*stages)
    stages[1] = ScoreFilter(WordCountFilter(1), "text")
    assert run(*stages)  # the attempt claims nothing


def test_a_field_that_only_a_later_file_has_is_found(tmp_path: Path) -> None:
    source = corpus(tmp_path / "in")
    (tmp_path / "in" / "b.jsonl").write_text('{"id": 99, "body": "some words"}\n')
    stages = [JsonlReader(source, files_per_partition=1), ScoreFilter(WordCountFilter(1), "body")]
    assert [i for b in run(*stages) for i in b.data["id"]] == [99]


class Told(ProcessingStage[Any, Any]):
    """Tells where it runs, and what it counted."""

    name = "told"

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        self.node = node_info.node_id

    def setup(self, worker_metadata: Any = None) -> None:
        self.worker = worker_metadata.worker_id

    def process(self, task: DocumentBatch) -> Any:
        self._log_metric("seen", task.num_items)
        task.data["where"] = f"{self.node} {bool(self.worker)}"
        return [task, NoneTask(), FailedTask()]


def test_where_a_stage_runs_and_what_it_took(tmp_path: Path) -> None:
    found = run(JsonlReader(corpus(tmp_path / "in", 5)), Told())
    assert set(found[0].data["where"]) == {f"{platform.node()} True"}
    metrics = TaskPerfUtils.collect_stage_metrics(found)
    assert metrics["told"]["num_items_processed"].tolist() == [5.0]
    assert metrics["told"]["custom.seen"].tolist() == [5.0]
    assert metrics["told"]["custom.tasks_given_up"].tolist() == [1.0]
    assert metrics["told"]["process_time"][0] > 0
    assert TaskPerfUtils.get_aggregated_stage_stat(found, "to", "num_items_processed") == 5.0
    assert TaskPerfUtils.aggregate_task_metrics({"p": found}, "x")["x_p_told_num_items_processed_mean"] == 5.0
    result = WorkflowRunResult("w")
    result.add_pipeline_tasks("p", found)
    result.extend_metadata({"n": 1})
    assert TaskPerfUtils.aggregate_task_metrics(result)["told_custom.seen_sum"] == 5.0
    assert (result.get_metadata("n"), result.get_metadata("m", 2)) == (1, 2)
    with pytest.raises(TypeError, match="got int"):
        TaskPerfUtils.collect_stage_metrics(3)


def test_names_of_tasks() -> None:
    first, second = assign_root_task_ids([Sheet(), Sheet()])
    assert (first.task_id, second.get_source_id(), second.get_deterministic_id()) == ("0", "1", None)
    assert FileGroupTask("d", ["b", "a"]).get_deterministic_id() == FileGroupTask("e", ["a", "b"]).task_id
    assert [type(t)().dataset_name for t in (EmptyTask(), NoneTask(), FailedTask())] == ["empty", "none", "failed"]
    assert all(isinstance(t, SentinelTask) and t.num_items == 0 for t in (EmptyTask(), NoneTask(), FailedTask()))


def test_a_task_may_be_named() -> None:
    assert FileGroupTask(task_id="batch_0", dataset_name="d", data=["a"]).task_id == "batch_0"
    assert (Sheet("d", ["x"], task_id="7").task_id, EmptyTask().task_id, EmptyTask(task_id="1").task_id) == (
        "7",
        "0",
        "1",
    )
