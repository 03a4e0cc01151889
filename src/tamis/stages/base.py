"""ProcessingStage: the one seam between users and the engine.

A stage has one abstract method, `process(task)`, which returns a task, several, or None (all documents dropped). Everything
else has a working default. A CompositeStage is a name for several stages and never runs itself.
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
from tamis.stages.notes import CallNotes, DropNote, InputFault, ScoreCounter
from tamis.stages.resources import Resources
from tamis.stages.traits import StageTraits
from tamis.tasks import Task

X = TypeVar("X", bound=Task[Any])
Y = TypeVar("Y", bound=Task[Any])

StageInputSpec = tuple[list[str], list[str]]  # task attributes, columns
StageInputSpecs = dict[type[Task[Any]], StageInputSpec]  # of a stage that takes tasks of several kinds

_UNSET: Any = object()

_REGISTRY: dict[str, type] = {}


class Rule(NamedTuple):
    """One rule by which a stage drops documents: what verdicts call it, what its scores are called, and its limits.

    `at_least`, `at_most`: names of the limits that a score must reach, and must not exceed, where these alone decide (a name
    such as `max_repeated_lines` says nothing: it is the least share of lines that differ). `inverted`: it drops what is inside.
    """

    name: str
    score: str
    limits: Mapping[str, Any]
    at_least: str | None = None
    at_most: str | None = None
    inverted: bool = False


class StageMeta(ABCMeta):
    """Registers stage classes by name and refuses definitions that would defeat `with_`."""

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


ALL_BATCHES = 1 << 30
"""As the batch_size of a stage: all batches of a partition at once, none of them cut."""


class ProcessingStage(Generic[X, Y], metaclass=StageMeta):
    """One step of a pipeline."""

    name: str = "ProcessingStage"
    resources: Resources = Resources(cpus=1.0)
    batch_size: int = 1
    runtime_env: dict[str, Any] | None = None
    is_source_stage: bool = False
    is_sink_stage: bool = False
    is_resumable: bool = True
    kernel_groups: ClassVar[tuple[str, ...]] = ()  # folders of tamis.kernels that it uses, loaded before any memory cap
    traits: ClassVar[StageTraits] = StageTraits()
    # What `inputs` and `outputs` tell, for stages that need not compute it: columns by name; `x_field` is the column that this parameter names.
    columns_in: ClassVar[Sequence[str] | None] = None
    columns_out: ClassVar[Sequence[str] | None] = None

    @abstractmethod
    def process(self, task: X) -> Y | list[Y] | None:
        """Turn one task into one task, several, or None. Must not depend on anything but the task and the stage.

        In a run, batches without documents are not passed to it (unless `is_source_stage`).
        """

    def process_batch(self, tasks: list[X]) -> list[Y]:
        """Process up to `batch_size` tasks at once.

        Override it only if processing several tasks together is cheaper than one by one.
        """
        results: list[Y] = []
        for task in tasks:
            if not self.validate_input(task):
                raise PipelineError(f"stage {self.name!r}: {self._what_is_missing(task)}")
            result = self.process(task)
            if isinstance(result, list):
                results.extend(result)
            elif result is not None:
                results.append(result)
        return results

    def supports_batch_processing(self) -> bool:
        return type(self).process_batch is not ProcessingStage.process_batch

    # -- life cycle in a worker ---------------------------------------------------------------------------------------
    def look_ahead(self, later: Sequence[ProcessingStage[Any, Any]]) -> None:
        """Called before a run with the stages behind it that run in the same worker: it may prepare what they will need."""

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        """Once per machine, before any worker starts (download a model, build an index)."""

    def setup(self, worker_metadata: Any = None) -> None:
        """Once per worker, before its first task (load a model)."""

    def teardown(self) -> None:
        """Once per worker, after its last task."""

    def keep_between_passes(self, folder: str) -> None:
        """Called by a workflow of several passes that run this stage again, with a folder for it alone: a stage whose results are dear
        (`keeps_results`) may keep them there, by the places of documents, instead of computing them again."""

    def least_bytes(self) -> int:
        """Memory that it takes at least once it is set up (the weights of a model), as far as that is known before: a budget in which
        that cannot fit is refused before anything is loaded. 0: not known."""
        return 0

    def model_files(self) -> str:
        """Return a fingerprint of the files that the results depend on (the weights of a model).

        A run is not resumed if they changed. Empty: none, or not known yet.
        """
        return ""

    def changed_results(self) -> str | None:
        """Return what this version does differently from earlier ones with the current model ("reads ...").

        A run that they began is not resumed. Empty: nothing, or not known yet. None: stages of this kind never
        changed.
        """
        return None

    # -- what it needs and gives --------------------------------------------------------------------------------------
    def inputs(self) -> Any:
        """(task attributes, columns) that must be there, or {TaskType: (attributes, columns)}."""
        return _spec(self, self.columns_in)

    def outputs(self) -> Any:
        """(task attributes, columns) that this stage adds."""
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
        """Columns are checked against the whole pipeline before the run (a field may be absent from one batch)."""
        attributes, _ = self.input_spec_for_task(task)
        return all(_has(task, a) for a in attributes)

    def _what_is_missing(self, task: Task[Any]) -> str:
        missing = [a for a in self.input_spec_for_task(task)[0] if not _has(task, a)]
        return f"expects a task with attributes {missing}, got {type(task).__name__} from the stage before it"

    # -- workers ------------------------------------------------------------------------------------------------------
    def num_workers(self) -> int | None:
        """Return a fixed number of workers, or None: the engine decides from measured rates."""
        return None

    def num_workers_per_node(self) -> float | None:
        return None

    def is_fanout_stage(self) -> bool:
        """Return True if one task becomes several: `process` is annotated to return a list."""
        return returns_list(self.process)

    def ray_stage_spec(self) -> dict[str, Any]:
        return {"is_fanout_stage": True} if self.is_fanout_stage() else {}

    def xenna_stage_spec(self) -> dict[str, Any]:
        return {}

    # -- configuration ------------------------------------------------------------------------------------------------
    def get_config(self) -> dict[str, Any]:
        """Parameters of this stage, as far as they are plain attributes."""
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
        if batch_size is not None and not is_count(batch_size):
            raise UsageError(f"with_(batch_size=...): expected a whole number of at least 1, got {batch_size!r}")
        plain = {"name": name, "resources": resources, "batch_size": batch_size, "runtime_env": runtime_env}
        specs = {"ray_stage_spec": ray_stage_spec, "xenna_stage_spec": xenna_stage_spec}
        workers = {"num_workers": num_workers, "num_workers_per_node": num_workers_per_node}
        given = {k: v for k, v in workers.items() if v is not _UNSET}
        for setting, number in given.items():
            if wrong := wrong_number_of_workers(setting, number):
                raise UsageError(f"with_({setting}=...): {wrong}")
        methods = {k: v for k, v in specs.items() if v is not None} | given
        for attribute, value in plain.items():
            if value is not None:
                object.__setattr__(changed, attribute, value)
        for method, result in methods.items():
            object.__setattr__(changed, method, _Constant(result))
        if all(_is_set(changed, setting) for setting in workers):  # by this call, or by this and an earlier one
            raise UsageError("with_(): give num_workers or num_workers_per_node, not both (None takes one back)")
        return changed

    # -- why documents go -----------------------------------------------------------------------------------------------
    def rules(self) -> list[Rule]:
        """Return the rules by which this stage drops documents, in the order it applies them.

        Empty for a stage that declares none.
        """
        return []

    # -- why documents went -------------------------------------------------------------------------------------------
    def _note_drops(
        self,
        serials: Any,
        reason: str,
        values: Any,
        threshold: Mapping[str, Any] | str,
        ids: Sequence[str | None] | None = None,
    ) -> None:
        """Say why documents do not come out of this call: `batch.serial` of each, the rule, what was measured, the limit.

        Optional: documents that go without a note are counted under the name of the stage.
        """
        if len(serials):
            self._call_notes().drops.append(DropNote(serials, reason, values, threshold, ids))

    def _note_bad(self, serials: Any, reasons: Sequence[str]) -> None:
        """Have documents of this call go to quarantine (`batch.serial` and a reason each): whatever the settings, this stage cannot do
        them (an image that cannot be decoded). They must not come out. Raising would have the whole batch tried again in parts.
        """
        if len(serials):
            self._call_notes().bad.append((serials, list(reasons)))

    # -- files that a stage reads itself ------------------------------------------------------------------------------
    def _note_input(self, faults: Sequence[InputFault] = (), n_records: int = 0, n_bytes: int = 0) -> None:
        """Report what this call read from files by itself: what could not be read goes to quarantine with file and offset."""
        notes = self._call_notes()
        notes.input = notes.input.plus(faults, n_records, n_bytes)

    # -- what was measured --------------------------------------------------------------------------------------------
    def _note_scores(self, name: str, scores: Any, serials: Any = None) -> None:
        """Have scores of this call counted in a histogram of the run: an array or a list, numbers or anything.

        At once, by what the engine put here for this call: scores of millions of documents are not to be held until its end.
        With `serials` (`batch.serial` of each) those of a rule's documents are kept, two bytes each (engine/worker/kept_scores.py).
        """
        count = self._call_notes().count_scores
        if count is not None:
            count(name, scores, serials)

    # -- the notes of one call -----------------------------------------------------------------------------------------
    _notes_of_call: CallNotes | None = None

    def _open_notes(self, count_scores: ScoreCounter | None = None) -> None:
        """Begin the notes of a call; what a failed attempt left is discarded."""
        object.__setattr__(self, "_notes_of_call", CallNotes(count_scores=count_scores))

    def _take_notes(self) -> CallNotes:
        """Return the notes of the call that ended, and forget them."""
        notes = self._call_notes()
        object.__setattr__(self, "_notes_of_call", None)
        return notes

    def _call_notes(self) -> CallNotes:
        if self._notes_of_call is None:  # called outside of a run
            self._open_notes()
        return cast("CallNotes", self._notes_of_call)

    # -- metrics of one's own -----------------------------------------------------------------------------------------
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
    """A picklable callable that always returns the same value (what `with_` puts over a method)."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self) -> Any:
        return self.value


class CompositeStage(ProcessingStage[X, Y]):
    """A name for several stages. Subclasses call `super().__init__()` if they have an `__init__` of their own."""

    name = "CompositeStage"

    @abstractmethod
    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        """Return the stages that this one expands to."""

    def process(self, task: X) -> Y | list[Y] | None:
        raise RuntimeError(f"{self.name} is a composite: it is decomposed before the run and never processes a task")

    def with_(self, stage_with_dict: dict[str, dict[str, Any]] | None = None, **settings: Any) -> Any:  # type: ignore[override]
        """`with_({stage_name: {settings}})` for its parts, or settings for all of them; returns a copy."""
        stage_settings = stage_with_dict
        changed = copy.deepcopy(self)
        earlier = self.__dict__.get("_with", [])
        if stage_settings is None:
            name = settings.pop("name", None)
            if name is not None:
                object.__setattr__(changed, "name", name)
            stage_settings = {"*": settings} if settings else {}
        elif settings:
            raise UsageError("with_(): give settings per stage name, or settings for all stages, not both")
        object.__setattr__(changed, "_with", [*earlier, stage_settings])
        if earlier or stage_settings:
            changed.decompose_and_apply_with()
        return changed

    def decompose_and_apply_with(self) -> list[ProcessingStage[Any, Any]]:
        stages = self.decompose()
        for settings in self.__dict__.get("_with", []):
            unknown = set(settings) - {s.name for s in stages} - {"*"}
            if unknown:
                raise UsageError(
                    f"{self.name}.with_(): no stage named {sorted(unknown)}; it has {[s.name for s in stages]}"
                )
            stages = [
                s.with_(**settings[s.name])
                if s.name in settings
                else s.with_(**settings["*"])
                if "*" in settings
                else s
                for s in stages
            ]
        return stages

    def get_description(self) -> str:
        return f"{self.name}: " + " -> ".join(s.name for s in self.decompose())


def is_count(value: Any) -> bool:
    """Return True if a setting is a whole number of at least 1."""
    return is_integer(value)


def wrong_number_of_workers(setting: str, value: Any) -> str:
    """Return what is wrong with a number of workers, or "" if nothing is.

    `setting`: `num_workers`, or `num_workers_per_node`, which may be a fraction. With no workers at all a run
    would wait forever.
    """
    if value is None or (setting == "num_workers" and is_count(value)):
        return ""
    if setting == "num_workers":
        return f"expected a whole number of at least 1, or None, got {value!r}"
    return "" if is_number(value) and value > 0 else f"expected a number above 0, or None, got {value!r}"


def _is_set(stage: ProcessingStage[Any, Any], method: str) -> bool:
    """Return True if `with_` replaced this method with a number."""
    found = vars(stage).get(method)
    return isinstance(found, _Constant) and found.value is not None


def _has(task: Task[Any], attribute: str) -> bool:
    """Return True if the task has the attribute, without evaluating it.

    The `data` of a batch is decoded when it is accessed, and all of it.
    """
    return attribute in vars(task) or hasattr(type(task), attribute)


def _spec(stage: ProcessingStage[Any, Any], columns: Sequence[str] | None) -> StageInputSpec:
    """`columns_in` or `columns_out` of a stage, with parameters replaced by the columns that they name (None: no column)."""
    if columns is None:
        return [], []
    named = (getattr(stage, c) if c.endswith("_field") else c for c in columns)
    return ["data"], [c for c in named if c is not None]
