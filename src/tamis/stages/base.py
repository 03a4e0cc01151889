"""ProcessingStage: the base class of everything that a pipeline runs, and the interface between users and the engine.

A stage has one abstract method, `process(task)`, which returns a task, several, or None (all documents dropped). All
else has a working default. The engine calls, in this order:

    look_ahead, setup_on_node   once, before workers start
    setup                       once per worker
    process_batch               for each group of up to `batch_size` batches; by default it calls `process` on each
    teardown                    once per worker

A CompositeStage is a name for several stages and is expanded before the run. `io.py` has the base classes of readers
and writers, `traits.py` what a stage class promises the engine, `notes.py` what a call reports to it.
"""

from __future__ import annotations

import copy
import time
from abc import ABCMeta, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, cast

from tamis.errors import PipelineError, UsageError
from tamis.signatures import returns_list
from tamis.sizes import is_integer, is_number
from tamis.stages.notes import CallNotes, DropNote, InputFault, InputNotes, ScoreCounter
from tamis.stages.resources import Resources
from tamis.stages.traits import StageTraits
from tamis.tasks import Task

X = TypeVar("X", bound=Task[Any])
Y = TypeVar("Y", bound=Task[Any])

StageInputSpec = tuple[list[str], list[str]]  # task attributes, columns
StageInputSpecs = dict[type[Task[Any]], StageInputSpec]  # of a stage that takes tasks of several kinds

ALL_BATCHES = 1 << 30
"""The batch_size of a stage that gets all batches of a partition at once, none of them split."""

_UNSET: Any = object()
_REGISTRY: dict[str, type] = {}


class DropRule(NamedTuple):
    """A rule by which a stage drops documents: its name in verdicts, the name of its scores, and its limits.

    `at_least`, `at_most`: names of the limits that a score must reach, and must not exceed, if these alone decide (a
    name such as `max_repeated_lines` does not say: it is the least share of lines that differ). `inverted`: it drops
    scores between them. `in_recipe`: how a recipe sets a limit, with {} for its value, such as "line_punct_thr: {}";
    by default under its own name. `meaning`: what the score is, in words.
    """

    name: str
    score: str
    limits: Mapping[str, Any]
    at_least: str | None = None
    at_most: str | None = None
    inverted: bool = False
    in_recipe: Mapping[str, str] = {}
    meaning: str = ""


class StageMeta(ABCMeta):
    """Registers stage classes by name and rejects definitions that `with_` could not override."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any) -> StageMeta:
        cls = super().__new__(mcls, name, bases, namespace, **kwargs)
        for attribute in ("name", "resources", "batch_size", "runtime_env"):
            if isinstance(namespace.get(attribute), property):
                raise TypeError(f"{name}.{attribute} must be a plain class or instance attribute, not a property")
        for attribute in ("_name", "_resources", "_batch_size"):
            if attribute in namespace:
                raise TypeError(f"{name} may not define {attribute}; set {attribute[1:]} instead")
        if "num_workers" in namespace and not callable(namespace["num_workers"]):
            raise TypeError(f"{name}.num_workers must be a method that returns a number or None")
        _REGISTRY[name] = cls
        return cls


def get_stage_class(name: str) -> type[ProcessingStage[Any, Any]]:
    """Return the stage class of that name, among those imported so far."""
    try:
        return _REGISTRY[name]
    except KeyError:
        raise UsageError(f"no stage class named {name!r} has been imported; known: {sorted(_REGISTRY)}") from None


class ProcessingStage(Generic[X, Y], metaclass=StageMeta):
    """One step of a pipeline. Subclasses implement `process` and set or override what else they need."""

    name: str = "ProcessingStage"
    """The name in logs, reports and verdicts."""
    resources: Resources = Resources(cpus=1.0)
    """Resources of one worker."""
    batch_size: int = 1
    """The number of batches that `process_batch` gets at once, at most."""
    runtime_env: dict[str, Any] | None = None
    """Environment variables of the workers: `{"env_vars": {...}}`."""
    is_source_stage: bool = False
    """It is the first stage of a pipeline and lists the input."""
    is_sink_stage: bool = False
    """It is the last stage of a pipeline and writes the output."""
    is_resumable: bool = True
    """For NeMo Curator; a run of Tamis can always be resumed."""
    traits: ClassVar[StageTraits] = StageTraits()
    """Promises of the class to the engine and to workflows."""
    kernel_groups: ClassVar[tuple[str, ...]] = ()
    """The folders of tamis.kernels that it uses, loaded before any memory cap is set."""
    columns_in: ClassVar[Sequence[str] | None] = None
    """The columns of `inputs`, for a stage that need not compute them.

    `x_field` is the column that this parameter names.
    """
    columns_out: ClassVar[Sequence[str] | None] = None
    """The columns of `outputs`, like `columns_in`."""
    redacts_samples: bool = False
    """It removes values that must not be stored from texts: `redact_sample` does so in those that a report shows."""
    _notes_of_call: CallNotes | None = None

    @abstractmethod
    def process(self, task: X) -> Y | list[Y] | None:
        """Return what becomes of one task: one task, several, or None.

        The result may depend on nothing but the task and the stage's parameters. In a run, batches without documents
        are not passed to it (unless `is_source_stage`).
        """

    def process_batch(self, tasks: list[X]) -> list[Y]:
        """Process up to `batch_size` tasks at once.

        Override it only if processing several tasks together is cheaper than one by one.
        """
        results: list[Y] = []
        for task in tasks:
            self._check_task(task)
            result = self.process(task)
            if isinstance(result, list):
                results.extend(result)
            elif result is not None:
                results.append(result)
        return results

    def supports_batch_processing(self) -> bool:
        return type(self).process_batch is not ProcessingStage.process_batch

    # -- life cycle ---------------------------------------------------------------------------------------------------
    def look_ahead(self, later: Sequence[ProcessingStage[Any, Any]]) -> None:
        """Prepare for the stages that follow in the same worker; called once, before the run."""

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        """Prepare a machine, before any of its workers starts (download a model, build an index)."""

    def setup(self, worker_metadata: Any = None) -> None:
        """Prepare a worker, before its first task (load a model)."""

    def teardown(self) -> None:
        """Release what `setup` acquired, after the last task of a worker."""

    # -- models -------------------------------------------------------------------------------------------------------
    def least_bytes(self) -> int:
        """Return the memory that a worker takes at least once it is set up (model weights), or 0 if that is not known.

        A budget below it is rejected before anything is loaded.
        """
        return 0

    def model_files(self) -> str:
        """Return a fingerprint of the files that the results depend on (model weights), or "" if there are none.

        A run is not resumed after they changed.
        """
        return ""

    def keep_between_passes(self, folder: str) -> None:
        """Store results in `folder`, by the positions of documents, instead of computing them in each pass.

        Called by a workflow of several passes on stages with `traits.keeps_results`.
        """

    def replaced_field(self) -> str | None:
        """Return the field that it takes away from documents and that later passes do not need, where it keeps results.

        None, the default, if there is none.
        """
        return None

    def take_kept_bytes(self) -> int | None:
        """Return the bytes of the results that it stored since the last call; None if it did not store all."""
        return None

    # -- columns ------------------------------------------------------------------------------------------------------
    def inputs(self) -> Any:
        """Return the required (task attributes, columns), or {TaskType: (attributes, columns)}."""
        return _spec(self, self.columns_in)

    def outputs(self) -> Any:
        """Return the (task attributes, columns) that this stage adds."""
        return _spec(self, self.columns_out)

    def input_spec_for_task(self, task: Task[Any]) -> tuple[list[str], list[str]]:
        spec = self.inputs()
        if isinstance(spec, Mapping):
            spec = next((value for kind, value in spec.items() if isinstance(task, kind)), ([], []))
        attributes, columns = spec
        return list(attributes), list(columns)

    def input_columns(self) -> list[str]:
        spec = self.inputs()
        if isinstance(spec, Mapping):
            return [c for _, columns in spec.values() for c in columns]
        return list(spec[1])

    def output_columns(self) -> list[str]:
        return list(self.outputs()[1])

    def validate_input(self, task: Task[Any]) -> bool:
        """Return True if the task has the required attributes and columns.

        In a run, columns are checked once for the pipeline instead, unless a stage overrides this method: a field may
        be missing from a single batch.
        """
        attributes, columns = self.input_spec_for_task(task)
        if not all(_has(task, a) for a in attributes):
            return False
        present = set(task.get_columns()) if columns else set()
        return all(column in present or hasattr(task.data, column) for column in columns)

    def _check_task(self, task: Task[Any]) -> None:
        """Raise PipelineError if a task lacks what this stage requires of it in a run."""
        if type(self).validate_input is not ProcessingStage.validate_input:
            if not self.validate_input(task):
                raise PipelineError(f"stage {self.name!r}: validate_input refuses {type(task).__name__} {task.task_id}")
            return
        missing = [a for a in self.input_spec_for_task(task)[0] if not _has(task, a)]
        if missing:
            raise PipelineError(
                f"stage {self.name!r}: expects a task with attributes {missing}, got {type(task).__name__} from the "
                "stage before it"
            )

    # -- workers ------------------------------------------------------------------------------------------------------
    def num_workers(self) -> int | None:
        """Return a fixed number of workers, or None to let the engine decide from measured rates."""
        return None

    def num_workers_per_node(self) -> float | None:
        """Return a fixed number of workers per machine, which may be a fraction, or None."""
        return None

    def is_fanout_stage(self) -> bool:
        """Return True if one task becomes several, which is so if `process` is annotated to return a list."""
        return returns_list(self.process)

    def ray_stage_spec(self) -> dict[str, Any]:
        """Return hints of NeMo Curator's stages for Ray. No executor of Tamis reads them: the engine places workers."""
        return {"is_fanout_stage": True} if self.is_fanout_stage() else {}

    def xenna_stage_spec(self) -> dict[str, Any]:
        """Return hints like `ray_stage_spec`, for Xenna."""
        return {}

    # -- configuration ------------------------------------------------------------------------------------------------
    def get_config(self) -> dict[str, Any]:
        """Return the parameters of this stage that are plain attributes."""
        return {k: v for k, v in vars(self).items() if not k.startswith("_")}

    def with_(
        self,
        name: str | None = None,
        resources: Resources | None = None,
        batch_size: int | None = None,
        runtime_env: dict[str, Any] | None = None,
        ray_stage_spec: dict[str, Any] | None = None,
        xenna_stage_spec: dict[str, Any] | None = None,
        num_workers: int | None = _UNSET,
        num_workers_per_node: float | None = _UNSET,
    ) -> Any:
        """Return a copy with these settings changed; the original is not modified."""
        changed = copy.deepcopy(self)
        if batch_size is not None and not is_integer(batch_size):
            raise UsageError(f"with_(batch_size=...): expected a whole number of at least 1, got {batch_size!r}")
        plain = {"name": name, "resources": resources, "batch_size": batch_size, "runtime_env": runtime_env}
        specs = {"ray_stage_spec": ray_stage_spec, "xenna_stage_spec": xenna_stage_spec}
        workers = {"num_workers": num_workers, "num_workers_per_node": num_workers_per_node}
        numbers = {k: v for k, v in workers.items() if v is not _UNSET}
        for setting, number in numbers.items():
            if problem := check_worker_count(setting, number):
                raise UsageError(f"with_({setting}=...): {problem}")
        methods = {k: v for k, v in specs.items() if v is not None} | numbers
        for attribute, value in plain.items():
            if value is not None:
                object.__setattr__(changed, attribute, value)
        for method, result in methods.items():
            object.__setattr__(changed, method, _Constant(result))
        if all(_is_set(changed, setting) for setting in workers):  # by this call, or by this and an earlier one
            raise UsageError("with_(): give num_workers or num_workers_per_node, not both (None resets one)")
        return changed

    # -- reports of a call --------------------------------------------------------------------------------------------
    def rules(self) -> list[DropRule]:
        """Return the rules by which this stage drops documents, in order; empty for a stage that declares none."""
        return []

    def find_evidence(self, rule: str, text: str) -> list[tuple[int, int]]:
        """Return the ranges of a text that speak against it by a rule of this stage, in order; empty where none do.

        For the examples of a report: called for few documents, whose texts are cut to a bound.
        """
        return []

    def redact_sample(self, text: str) -> str:
        """Return a text without the values that this stage removes because they must not be stored."""
        return text

    def _note_drops(
        self,
        serials: Any,
        reason: str,
        values: Any,
        threshold: Mapping[str, Any] | str,
        ids: Sequence[str | None] | None = None,
    ) -> None:
        """Report why this call drops documents: `batch.serial` of each, the rule, the measured values, the limit.

        Optional: documents that are dropped without a note are counted under the name of the stage.
        """
        if len(serials):
            self._call_notes().drops.append(DropNote(serials, reason, values, threshold, ids))

    def _note_bad(self, serials: Any, reasons: Sequence[str]) -> None:
        """Quarantine documents that the stage cannot process, such as broken images.

        `serials`: `batch.serial` of each. The call must not return them. An exception would make the engine retry the
        whole batch in parts.
        """
        if len(serials):
            self._call_notes().bad.append((serials, list(reasons)))

    def _note_input(
        self,
        faults: Sequence[InputFault] = (),
        n_records: int = 0,
        n_bytes: int = 0,
        skipped: Mapping[str, int] | None = None,
    ) -> None:
        """Report what this call read from files by itself; unreadable parts are quarantined with file and offset.

        `n_records`: those that could be read. `skipped`: how many of these became no document, by reason.
        """
        notes = self._call_notes()
        notes.input = notes.input.plus(InputNotes(faults, n_records, n_bytes, skipped or {}))

    def _note_scores(self, name: str, scores: Any, serials: Any = None) -> None:
        """Count scores of this call, an array or a list, in a histogram of the run.

        They are counted at once rather than stored until the end of the call, because a call may have millions. With
        `serials` (`batch.serial` of each) the engine also stores the scores of a rule, two bytes each
        (engine/worker/survivor_scores.py).
        """
        count = self._call_notes().count_scores
        if count is not None:
            count(name, scores, serials)

    def _open_notes(self, count_scores: ScoreCounter | None = None) -> None:
        """Start the notes of a call, discarding those of a failed attempt. Called by the worker."""
        object.__setattr__(self, "_notes_of_call", CallNotes(count_scores=count_scores))

    def _take_notes(self) -> CallNotes:
        """Return the notes of the call that ended, and reset them. Called by the worker."""
        notes = self._call_notes()
        object.__setattr__(self, "_notes_of_call", None)
        return notes

    def _call_notes(self) -> CallNotes:
        if self._notes_of_call is None:  # called outside of a run
            self._open_notes()
        return cast("CallNotes", self._notes_of_call)

    # -- metrics ------------------------------------------------------------------------------------------------------
    def _log_metrics(self, metrics: Mapping[str, float]) -> None:
        totals = self.__dict__.setdefault("_metrics", {})
        for key, value in metrics.items():
            totals[key] = totals.get(key, 0.0) + value

    def _log_metric(self, name: str, value: float) -> None:
        self._log_metrics({name: value})

    @contextmanager
    def _time_metric(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self._log_metric(name, time.perf_counter() - start)

    def _consume_custom_metrics(self) -> dict[str, float]:
        return dict(self.__dict__.pop("_metrics", {}))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class _Constant:
    """A picklable callable that always returns the same value, with which `with_` replaces a method."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self) -> Any:
        return self.value


class CompositeStage(ProcessingStage[X, Y]):
    """A name for several stages. Subclasses with an `__init__` call `super().__init__()`."""

    name = "CompositeStage"

    @abstractmethod
    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        """Return the stages that this one expands to."""

    def process(self, task: X) -> Y | list[Y] | None:
        raise RuntimeError(f"{self.name} is a composite: it is expanded before the run and never processes a task")

    def with_(  # type: ignore[override]
        self, stage_with_dict: dict[str, dict[str, Any]] | None = None, **settings: Any
    ) -> Any:
        """Change settings per stage name, `with_({stage_name: {settings}})`, or settings for all; return this stage.

        Unlike that of other stages this changes the stage itself, as in NeMo Curator.
        """
        stage_settings = stage_with_dict
        earlier, name = self.__dict__.get("_with", []), None
        if stage_settings is None:
            name = settings.pop("name", None)
            stage_settings = {"*": settings} if settings else {}
        elif settings:
            raise UsageError("with_(): give settings per stage name, or settings for all stages, not both")
        object.__setattr__(self, "_with", [*earlier, stage_settings])
        try:
            if earlier or stage_settings:
                self.decompose_and_apply_with()
        except BaseException:
            object.__setattr__(self, "_with", earlier)
            raise
        if name is not None:
            object.__setattr__(self, "name", name)
        return self

    def decompose_and_apply_with(self) -> list[ProcessingStage[Any, Any]]:
        stages = self.decompose()
        for settings in self.__dict__.get("_with", []):
            unknown = set(settings) - {s.name for s in stages} - {"*"}
            if unknown:
                raise UsageError(
                    f"{self.name}.with_(): no stage named {sorted(unknown)}; it has {[s.name for s in stages]}"
                )
            changes = [settings.get(s.name, settings.get("*")) for s in stages]
            stages = [s if change is None else s.with_(**change) for s, change in zip(stages, changes, strict=True)]
        return stages

    def get_description(self) -> str:
        return f"{self.name}: " + " -> ".join(s.name for s in self.decompose())


def check_worker_count(setting: str, value: Any) -> str:
    """Return the problem with a number of workers, or "".

    `setting`: `num_workers`, or `num_workers_per_node`, which may be a fraction. A run without workers would wait
    forever.
    """
    if value is None or (setting == "num_workers" and is_integer(value)):
        return ""
    if setting == "num_workers":
        return f"expected a whole number of at least 1, or None, got {value!r}"
    return "" if is_number(value) and value > 0 else f"expected a number above 0, or None, got {value!r}"


def _is_set(stage: ProcessingStage[Any, Any], method: str) -> bool:
    """Return True if `with_` replaced this method with a number."""
    constant = vars(stage).get(method)
    return isinstance(constant, _Constant) and constant.value is not None


def _has(task: Task[Any], attribute: str) -> bool:
    """Return True if the task has the attribute, without evaluating it.

    Access to the `data` of a batch would decode all of it.
    """
    return attribute in vars(task) or hasattr(type(task), attribute)


def _spec(stage: ProcessingStage[Any, Any], columns: Sequence[str] | None) -> StageInputSpec:
    """Return `columns_in` or `columns_out` of a stage as a spec.

    A name that ends in "_field" is a parameter, whose value is the column.
    """
    if columns is None:
        return [], []
    named = (getattr(stage, c) if c.endswith("_field") else c for c in columns)
    return ["data"], [c for c in named if c is not None]
