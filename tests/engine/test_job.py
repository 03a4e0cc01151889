"""A built pipeline, sorted into source, reader, segments and writer."""

from __future__ import annotations

from typing import Any

import pytest

from tamis.dedup.exact.stages import DocumentHashes
from tamis.dedup.fuzzy.stages import DocumentSketches
from tamis.engine.job import Job, make_job
from tamis.errors import PipelineError
from tamis.stages.base import ProcessingStage
from tamis.stages.resources import Resources
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter
from tamis.stages.text.models.model import ModelStage
from tamis.stages.traits import StageTraits
from tamis.tasks import DocumentBatch, Task


class Step(ProcessingStage[Any, Any]):
    name = "step"

    def __init__(self, needs: str = "", gives: str = "", cpus: float = 1.0) -> None:
        self.needs, self.gives, self.resources = needs, gives, Resources(cpus=cpus)

    def inputs(self) -> Any:
        return [], [self.needs] if self.needs else []

    def outputs(self) -> Any:
        return [], [self.gives] if self.gives else []

    def process(self, task: Task[Any]) -> Task[Any]:
        return task


class Model(Step):
    traits = StageTraits(gives_documents=True)


class Source(Step):
    name = "source"
    is_source_stage = True


READ = JsonlReader("in/").decompose()


def spans(stages: list[ProcessingStage[Any, Any]], mode: str = "streaming") -> list[tuple[int, int]]:
    return [(s.first, s.last) for s in make_job("p", [*READ, *stages, JsonlWriter("out")], mode).segments]


def test_ends_and_middle() -> None:
    job = make_job("p", [*READ, Step(), Step(), JsonlWriter("out")])
    assert (job.source, job.reader, job.partitioning) == (READ[0], READ[1], READ[0])
    assert job.writer is not None
    assert job.labels == ["step", "step#2"]


def test_neighbours_with_equal_needs_are_fused() -> None:
    assert spans([Step(), Step(), Step(cpus=2.0), Step(cpus=2.0), Step()]) == [(0, 2), (2, 4), (4, 5)]
    assert spans([Step(), Step().with_(num_workers=2), Step().with_(num_workers=2)]) == [(0, 1), (1, 3)]
    assert spans([]) == [(0, 0)]


def test_who_has_a_gpu_does_not_write_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    on_gpu, anything = Model(), Step()
    on_gpu.resources = anything.resources = Resources(gpus=0.5)
    assert spans([Step(), on_gpu]) == [(0, 1), (1, 2), (2, 2)]
    assert spans([on_gpu, Step()]) == [(0, 1), (1, 2)]
    assert spans([on_gpu, anything]) == [(0, 2)], "it may give files, which only the worker that has them can write"
    assert all(kind.traits.gives_documents for kind in (ModelStage, DocumentHashes, DocumentSketches))


def test_batch_mode_keeps_stages_apart() -> None:
    assert spans([Step(), Step(), Step()], "batch") == [(0, 1), (1, 2), (2, 3)]


def test_fields_to_look_for_are_those_that_no_stage_makes() -> None:
    job = make_job(
        "p", [*READ, Step(needs="text", gives="score"), Step(needs="score"), Step(needs="url"), Step(needs="text")]
    )
    assert job.keys() == ["text", "url", "id"]  # the id is for verdicts
    assert make_job("p", list(READ)).keys() == []


def test_a_source_of_ones_own_is_a_stage_like_others() -> None:
    job = make_job("p", [Source(), Step(), Step(cpus=2.0)])
    assert (job.source, job.reader, job.partitioning, job.writer) == (None, None, None, None)
    assert [s.name for s in job.stages] == ["source", "step", "step"]
    assert [(s.first, s.last, s.resources.cpus) for s in job.segments] == [(0, 3, 2.0)]  # tasks of any kind flow
    assert [s.name for s in make_job("p", [Source(), READ[1]]).stages] == ["source", "jsonl_reader"]


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([*READ, Step(), READ[1]], "a pipeline must begin with its reader: move 'jsonl_reader'"),
        ([*READ, JsonlWriter("out"), Step()], "a pipeline must end with its writer: move 'jsonl_writer'"),
        ([*READ, Step().with_(runtime_env={"pip": ["x"]})], r"runtime_env has \['pip'\]"),
    ],
)
def test_what_cannot_be_run_is_said_before(stages: list[ProcessingStage[Any, Any]], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        make_job("p", stages)


class _Looks(ProcessingStage[Any, Any]):
    def process(self, task: Any) -> Any:
        return [task.data[c] for c in "ab"]


class _LooksNot(ProcessingStage[Any, Any]):
    def process(self, task: Any) -> Any:
        return DocumentBatch(data=task.to_pyarrow())


@pytest.mark.parametrize(("stage", "wanted"), [(_Looks(), True), (_LooksNot(), False)])
def test_pandas_is_loaded_for_stages_that_look_at_frames(stage: Any, wanted: bool) -> None:
    assert Job("j", None, None, [stage], None).wants_frames() is wanted


@pytest.mark.parametrize(("setting", "value"), [("num_workers", 0), ("num_workers", -2), ("num_workers_per_node", 0)])
def test_a_stage_without_workers_is_refused(setting: str, value: int) -> None:
    stages = [Step(), type("None", (Step,), {setting: lambda self: value})()]
    for read in (READ, []):
        with pytest.raises(PipelineError, match=rf"stage 'step': {setting}\(\): expected a .*number.*, got {value}"):
            make_job("p", [*read, *stages, JsonlWriter("out")])
