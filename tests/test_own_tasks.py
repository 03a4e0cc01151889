"""Pipelines without a reader: tasks and sources of one's own, end to end; and what is said of stages that fail."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.errors import Incomplete, PipelineError, RunConflict, TamisError, UsageError
from tamis.stages.base import ProcessingStage
from tamis.stages.text.filters import ScoreFilter
from tamis.stages.text.filters.heuristic import WordCountFilter
from tamis.stages.text.io.reader import JsonlReader, JsonlReaderStage
from tamis.stages.text.io.writer import JsonlWriter
from tamis.tasks import DocumentBatch, EmptyTask, FileGroupTask, Task


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


class Documents2(ProcessingStage[DocumentBatch, DocumentBatch]):
    name = "same"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task


def test_tasks_that_a_writer_cannot_write_are_told(tmp_path: Path) -> None:
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
    expected = r"stage 'fails': ValueError: no such thing \[test_own_tasks.py, line \d+, in process: raise ValueError\(\"no such thing\"\)\]"
    with pytest.raises(TamisError, match=expected):
        run(Fails(), **more)


def test_the_first_exception_is_told_with_its_document(tmp_path: Path) -> None:
    source = corpus(tmp_path / "in")
    expected = r"fails on 2\d of \d+ documents so far.*first: stage 'fails': ValueError: no such thing on one record of .*a.jsonl \(at \d+"
    with pytest.raises(Incomplete, match=expected):
        run(JsonlReader(source), Fails())
    few = corpus(tmp_path / "few", 3)
    with pytest.raises(Incomplete, match=r"not one document.*First: stage 'fails': ValueError"):
        run(JsonlReader(few), Fails())


def test_documents_in_quarantine_are_told_where_the_run_is_complete(tmp_path: Path) -> None:
    source = corpus(tmp_path / "in")
    with pytest.warns(UserWarning, match=r"p: 1 documents are in quarantine \(.*first: stage 'fails'.*\(at \d+"):
        (batch,) = run(JsonlReader(source), Fails("word 17"))
    assert batch.num_items == 29


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
