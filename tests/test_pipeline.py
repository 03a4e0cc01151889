"""Pipeline: an ordered list of stages, checked before anything runs."""

from __future__ import annotations

from typing import Any

import pytest

from tamis.errors import PipelineError, UsageError
from tamis.pipeline import Pipeline, Sequential
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.text.io.reader import JsonlReader, JsonlReaderStage
from tamis.stages.text.io.writer import JsonlWriter
from tamis.tasks import Task


class Step(ProcessingStage[Any, Any]):
    name = "step"

    def __init__(self, needs: list[str] | None = None, gives: list[str] | None = None) -> None:
        self.needs, self.gives = needs or [], gives or []

    def inputs(self) -> Any:
        return [], self.needs

    def outputs(self) -> Any:
        return [], self.gives

    def process(self, task: Task[Any]) -> Task[Any]:
        return task


class Nested(CompositeStage[Any, Any]):
    name = "nested"

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        return [JsonlReader("in/")]


def test_stages_are_added_in_order_and_chained() -> None:
    pipeline = Pipeline("p", "what it does", config={"memory": "1GB"})
    assert pipeline.add_stage(JsonlReader("in/")).add_stage(Step()).add_stage(JsonlWriter("out")) is pipeline
    assert [s.name for s in pipeline.build()] == ["file_partitioning", "jsonl_reader", "step", "jsonl_writer"]
    assert pipeline.decomposition_info == {"jsonl_reader": ["file_partitioning", "jsonl_reader"]}
    assert [s.name for s in pipeline.stages] == ["jsonl_reader", "step", "jsonl_writer"]  # building changes nothing
    assert [s.name for s in pipeline.build()] == ["file_partitioning", "jsonl_reader", "step", "jsonl_writer"]
    assert repr(pipeline) == "Pipeline('p', stages=[jsonl_reader, step, jsonl_writer])"
    assert pipeline.config == {"memory": "1GB"}


def test_sequential_is_a_pipeline_from_a_list() -> None:
    assert repr(Sequential([Step(), Step()])) == "Sequential('sequential', stages=[step, step])"


def test_only_stage_objects_can_be_added() -> None:
    with pytest.raises(TypeError, match=r"write Step\(...\) instead of Step"):
        Pipeline("p").add_stage(Step)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes a ProcessingStage, got str"):
        Pipeline("p", stages=["step"])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("stages", "error", "message"),
    [
        ([], ValueError, "pipeline 'p' has no stages"),
        ([Nested()], TypeError, "nested decomposes into jsonl_reader, which is a composite itself"),
        ([JsonlReader("a"), JsonlReader("b")], ValueError, "two sources, 'file_partitioning' and 'file_partitioning'"),
        ([JsonlReader("a"), JsonlWriter("b"), JsonlWriter("c")], ValueError, "two writers"),
        ([Step(), JsonlReader("a")], PipelineError, "its source 'file_partitioning' must be the first stage"),
        (
            [JsonlReader("a"), JsonlWriter("b"), Step()],
            PipelineError,
            "its writer 'jsonl_writer' must be the last stage",
        ),
    ],
)
def test_an_order_that_cannot_work_is_refused(stages: list[Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Pipeline("p", stages=stages).build()


def test_a_column_that_no_stage_provides_is_named_before_the_run() -> None:
    reader = JsonlReader("in/", fields=["text"])
    with pytest.raises(
        PipelineError,
        match=r"stage 'step' needs column 'score'.* jsonl_reader reads only \['text'\]",
    ):
        Pipeline("p", stages=[reader, Step(needs=["score"])]).build()
    with pytest.raises(PipelineError, match="needs column 'score'"):  # made too late
        Pipeline("p", stages=[reader, Step(needs=["score"]), Step(gives=["score"])]).build()
    Pipeline("p", stages=[reader, Step(gives=["score"]), Step(needs=["score", "text"])]).build()
    Pipeline("p", stages=[JsonlReader("in/"), Step(needs=["score"])]).build()  # any field may be there
    with pytest.raises(PipelineError, match=r"jsonl_writer .*'url'.*columns: \['text'\]"):
        Pipeline("p", stages=[reader, JsonlWriter("out", fields=["text", "url"])]).build()


def test_the_description_names_needs_and_gifts() -> None:
    text = Pipeline("p", "cleans", stages=[JsonlReader("in/"), Step(needs=["text"], gives=["score"])]).describe()
    assert text.splitlines() == [
        "Pipeline 'p': cleans",
        "  1. file_partitioning (FilePartitioningStage; cpus=0.5; batch_size=1)",
        "  2. jsonl_reader (JsonlReaderStage; cpus=1; batch_size=1)",
        "  3. step (Step; cpus=1; batch_size=1)",
        "       needs: text",
        "       gives: score",
    ]


def test_a_run_refuses_settings_it_does_not_know() -> None:
    pipeline = Pipeline("p", stages=[JsonlReader("in/"), JsonlWriter("out")])
    with pytest.raises(UsageError, match=r"unknown setting 'memry'; did you mean 'memory'\?"):
        pipeline.run(memry="1GB")
    with pytest.raises(UsageError, match="checkpoint_path or run_dir, not both"):
        pipeline.run(checkpoint_path="a", run_dir="b")
    with pytest.raises(UsageError, match="run_dir is for pipelines without a writer"):
        pipeline.run(run_dir="b")


def test_a_reader_without_files_asks_for_them() -> None:
    with pytest.raises(PipelineError, match="has no source: jsonl_reader needs files"):
        Pipeline("p", stages=[JsonlReaderStage()]).run()
