"""ProcessingStage, CompositeStage, Resources and processing_stage: the rules for those who write stages."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tamis.errors import PipelineError, UsageError
from tamis.stages.base import CompositeStage, ProcessingStage, get_stage_class
from tamis.stages.function_decorators import processing_stage
from tamis.stages.resources import Resources
from tamis.tasks import DocumentBatch, FileGroupTask, Task


@dataclass(repr=False)
class Add(ProcessingStage[Any, Any]):
    amount: int = 1
    name: str = "add"

    def process(self, task: Task[int]) -> Task[int] | None:
        return Task(task.dataset_name, task.data + self.amount) if task.data < 100 else None


class Twice(ProcessingStage[Any, Any]):
    name = "twice"

    def process(self, task: Task[int]) -> list[Task[int]]:
        return [task, task]


class Both(CompositeStage[Any, Any]):
    name = "both"

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        return [Add(2), Twice()]


def values(tasks: list[Task[int]]) -> list[int]:
    return [t.data for t in tasks]


def test_one_several_or_none_come_back_as_a_list() -> None:
    assert values(Add(5).process_batch([Task("d", 1), Task("d", 500), Task("d", 2)])) == [6, 7]
    assert values(Twice().process_batch([Task("d", 1), Task("d", 2)])) == [1, 1, 2, 2]


def test_defaults_of_a_stage() -> None:
    stage = Twice()
    assert (stage.resources, stage.batch_size, stage.runtime_env) == (Resources(cpus=1.0), 1, None)
    assert (stage.is_source_stage, stage.is_sink_stage, stage.is_resumable) == (False, False, True)
    assert (stage.inputs(), stage.outputs(), stage.num_workers(), stage.num_workers_per_node()) == (
        ([], []),
        ([], []),
        None,
        None,
    )
    assert (stage.ray_stage_spec(), Add().ray_stage_spec(), stage.xenna_stage_spec()) == (
        {"is_fanout_stage": True},
        {},
        {},
    )
    assert stage.setup() is None
    assert stage.setup_on_node() is None
    assert stage.teardown() is None
    assert repr(stage) == "Twice('twice')"


def test_process_is_the_one_thing_a_stage_must_have() -> None:
    with pytest.raises(TypeError, match="abstract"):
        ProcessingStage()  # type: ignore[abstract]


def test_batch_capable_is_who_overrides_process_batch() -> None:
    class Fast(Twice):
        def process_batch(self, tasks: list[Any]) -> list[Any]:
            return tasks

    assert (Twice().supports_batch_processing(), Fast().supports_batch_processing()) == (False, True)


def test_a_task_of_the_wrong_kind_is_named() -> None:
    class NeedsFiles(Twice):
        name = "needs files"

        def inputs(self) -> Any:
            return ["reader_config"], []

    with pytest.raises(
        PipelineError, match=r"stage 'needs files': expects a task with attributes \['reader_config'\], got Task"
    ):
        NeedsFiles().process_batch([Task("d", 1)])
    assert len(NeedsFiles().process_batch([FileGroupTask("d", ["a"])])) == 2


def test_columns_are_required_of_a_batch_only_by_who_asks() -> None:
    class NeedsText(Twice):
        def inputs(self) -> Any:
            return ["data"], ["text"]

    class Strict(NeedsText):
        def validate_input(self, task: Any) -> bool:
            return super().validate_input(task)

    other, texts = DocumentBatch("d", pa.table({"n": [1]})), DocumentBatch("d", pa.table({"text": ["a"]}))
    assert (NeedsText().validate_input(other), NeedsText().validate_input(texts)) == (False, True)
    assert len(NeedsText().process_batch([other])) == 2  # columns are checked once for the pipeline
    assert len(Strict().process_batch([texts])) == 2
    with pytest.raises(PipelineError, match="validate_input refuses DocumentBatch"):
        Strict().process_batch([other])


def test_inputs_may_depend_on_the_kind_of_task() -> None:
    class Either(Twice):
        def inputs(self) -> Any:
            return {DocumentBatch: (["data"], ["text"]), FileGroupTask: (["reader_config"], [])}

    assert Either().input_spec_for_task(FileGroupTask()) == (["reader_config"], [])
    assert Either().input_spec_for_task(DocumentBatch()) == (["data"], ["text"])
    assert Either().input_spec_for_task(Task()) == ([], [])
    assert Either().input_columns() == ["text"]


@pytest.mark.parametrize("name", ["name", "resources", "batch_size", "runtime_env"])
def test_properties_that_would_defeat_with_are_refused(name: str) -> None:
    with pytest.raises(TypeError, match=f"Bad.{name} must be a plain class or instance attribute"):
        type("Bad", (Twice,), {name: property(lambda self: 1)})


@pytest.mark.parametrize("name", ["_name", "_resources", "_batch_size"])
def test_private_twins_are_refused(name: str) -> None:
    with pytest.raises(TypeError, match=f"Bad may not define {name}; set {name[1:]} instead"):
        type("Bad", (Twice,), {name: 1})


def test_num_workers_is_a_method() -> None:
    with pytest.raises(TypeError, match=r"Bad.num_workers must be a method"):
        type("Bad", (Twice,), {"num_workers": 3})


def test_stages_are_found_by_class_name() -> None:
    assert get_stage_class("Add") is Add
    with pytest.raises(UsageError, match="no stage class named 'Nonsense'"):
        get_stage_class("Nonsense")


def test_with_returns_a_changed_copy() -> None:
    stage = Add(7)
    changed = stage.with_(
        name="more",
        resources=Resources(cpus=2.0),
        batch_size=4,
        num_workers=3,
        ray_stage_spec={"a": 1},
        runtime_env={"env_vars": {}},
    )
    assert (changed.name, changed.resources.cpus, changed.batch_size, changed.num_workers(), changed.amount) == (
        "more",
        2.0,
        4,
        3,
        7,
    )
    assert (changed.ray_stage_spec(), changed.runtime_env) == ({"a": 1}, {"env_vars": {}})
    assert (stage.name, stage.resources.cpus, stage.batch_size, stage.num_workers(), stage.runtime_env) == (
        "add",
        1.0,
        1,
        None,
        None,
    )
    assert pickle.loads(pickle.dumps(changed)).num_workers() == 3
    assert changed.with_(num_workers=None).num_workers() is None
    assert stage.with_().get_config() == stage.get_config()


@pytest.mark.parametrize("size", [0, -1, True, 1.5, "2"])
def test_with_checks_the_batch_size(size: Any) -> None:
    with pytest.raises(UsageError, match=r"with_\(batch_size=...\): expected a whole number of at least 1"):
        Add().with_(batch_size=size)


def test_with_takes_one_number_of_workers() -> None:
    with pytest.raises(UsageError, match="num_workers or num_workers_per_node, not both"):
        Add().with_(num_workers=1, num_workers_per_node=1)
    assert Add().with_(num_workers_per_node=2).num_workers_per_node() == 2
    with pytest.raises(UsageError, match="num_workers or num_workers_per_node, not both"):
        Add().with_(num_workers=1).with_(num_workers_per_node=1)
    changed = Add().with_(num_workers=1).with_(num_workers=None, num_workers_per_node=0.5)
    assert (changed.num_workers(), changed.num_workers_per_node()) == (None, 0.5)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("num_workers", v) for v in (0, -1, True, 2.0, "2")),
        *(("num_workers_per_node", v) for v in (0, -0.5, True, float("nan"), float("inf"), "2")),
    ],
)
def test_with_checks_the_number_of_workers(setting: str, value: Any) -> None:
    with pytest.raises(UsageError, match=rf"with_\({setting}=...\): expected a .*number"):
        Add().with_(**{setting: value})


def test_metrics_add_up_and_are_taken_once() -> None:
    stage = Add()
    stage._log_metric("a", 1.0)
    stage._log_metrics({"a": 2.0, "b": 5.0})
    with stage._time_metric("t"):
        pass
    taken = stage._consume_custom_metrics()
    assert (taken["a"], taken["b"], sorted(taken)) == (3.0, 5.0, ["a", "b", "t"])
    assert stage._consume_custom_metrics() == {}


# -- composites -------------------------------------------------------------------------------------------------------
def test_a_composite_is_its_parts_and_never_runs() -> None:
    assert [s.name for s in Both().decompose_and_apply_with()] == ["add", "twice"]
    assert Both().get_description() == "both: add -> twice"
    with pytest.raises(RuntimeError, match="both is a composite"):
        Both().process(Task())


def test_with_on_a_composite_changes_it_and_reaches_its_parts() -> None:
    both = Both()
    assert both.with_({"add": {"batch_size": 9}}).with_({"twice": {"name": "double"}}) is both
    assert [(s.name, s.batch_size) for s in both.decompose_and_apply_with()] == [("add", 9), ("double", 1)]
    with pytest.raises(UsageError, match="no stage named"):
        both.with_({"twice": {"batch_size": 2}})
    assert [s.batch_size for s in both.with_(batch_size=3).decompose_and_apply_with()] == [3, 3]
    assert both.with_(name="renamed").name == "renamed"


def test_with_on_a_composite_refuses_what_it_does_not_know() -> None:
    with pytest.raises(UsageError, match=r"both.with_\(\): no stage named \['nonsense'\]; it has \['add', 'twice'\]"):
        Both().with_({"nonsense": {"batch_size": 2}})
    with pytest.raises(UsageError, match="not both"):
        Both().with_({"add": {}}, batch_size=2)


# -- resources and functions ------------------------------------------------------------------------------------------
def test_resources_and_what_they_refuse() -> None:
    assert (Resources().cpus, Resources().requires_gpu) == (1.0, False)
    assert Resources(gpus=0.5).requires_gpu
    assert Resources(gpu_memory_gb=4).requires_gpu
    assert Resources(memory_gb=2.5).memory_gb == 2.5
    with pytest.raises(UsageError, match="either gpus"):
        Resources(gpus=1, gpu_memory_gb=4)
    for bad in (-1, float("inf"), float("nan"), True, "1"):
        with pytest.raises(UsageError, match=r"Resources\(cpus=...\): expected a number of at least 0"):
            Resources(cpus=bad)  # type: ignore[arg-type]


def test_a_function_becomes_a_stage() -> None:
    @processing_stage(name="plus", resources={"cpus": 2.0}, batch_size=3)
    def plus(task: Task[int]) -> Task[int]:
        """Add one."""
        return Task(task.dataset_name, task.data + 1)

    assert isinstance(plus, ProcessingStage)
    assert (plus.name, plus.resources.cpus, plus.batch_size, plus.__doc__) == ("plus", 2.0, 3, "Add one.")
    assert values(plus.process_batch([Task("d", 1)])) == [2]
    assert plus(Task("d", 5)).data == 6
    assert plus.with_(name="other").name == "other"


def test_a_function_that_returns_a_list_makes_several_tasks_of_one() -> None:
    @processing_stage(name="both")
    def both(task: Task[int]) -> list[Task[int]]:
        return [task, task]

    @processing_stage(name="one")
    def one(task: Task[int]) -> Task[int]:
        return task

    assert (both.is_fanout_stage(), both.ray_stage_spec()) == (True, {"is_fanout_stage": True})
    assert (one.is_fanout_stage(), one.ray_stage_spec()) == (False, {})
    assert not processing_stage(name="size")(dict.pop).is_fanout_stage()  # without a signature


def test_a_function_stage_checks_its_arguments() -> None:
    for size in (0, True, 1.5):
        with pytest.raises(UsageError, match=f"a whole number of at least 1, got {size}"):
            processing_stage(name="x", batch_size=size)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="got int"):
        processing_stage(name="x")(5)  # type: ignore[arg-type]


def test_checking_a_batch_decodes_nothing() -> None:
    asked: list[str] = []

    class Block:
        n_rows, places = 2, None

        def field_names(self, rows: Any = None) -> list[str]:
            return ["text"]

        def column(self, name: str) -> pa.Array:
            asked.append(name)
            return pa.array(["a", "b"])

    class Needs(ProcessingStage[DocumentBatch, DocumentBatch]):
        name = "needs_data"

        def inputs(self) -> tuple[list[str], list[str]]:
            return ["data"], ["text"]

        def process(self, task: DocumentBatch) -> DocumentBatch:
            return task

    batch = DocumentBatch.over(Block(), np.arange(2))
    assert Needs().process_batch([batch]) == [batch]
    assert asked == []
    assert not Needs().validate_input(object.__new__(type("Bare", (), {})))
