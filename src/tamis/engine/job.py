"""A built pipeline as the engine sees it: where documents come from, stages in segments, where they go."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import field
from pickle import PicklingError
from types import CodeType
from typing import Any, NamedTuple

from tamis._dataclasses import dataclass
from tamis.engine.schema import ID_FIELD, RecordedRule
from tamis.errors import PipelineError
from tamis.kernels.loading.library import RECORDS
from tamis.memory.gpu import count_gpus
from tamis.stages.base import DropRule, ProcessingStage, check_worker_count
from tamis.stages.file_partitioning import FilePartitioningStage
from tamis.stages.io import Reader, Writer
from tamis.stages.resources import Resources
from tamis.tasks import DocumentBatch, Task

KEY = os.urandom(32)  # of this program: data without its signature is never unpickled
_FRAMES = {"data", "to_pandas", "pandas"}


class Segment(NamedTuple):
    """Neighbouring stages that run in one worker: stages[first:last] of the job."""

    first: int
    last: int
    resources: Resources
    n_workers: int | None = None  # fixed by a stage
    in_all: bool = False  # ... for all nodes together, not for each


@dataclass
class Job:
    name: str
    # A FilePartitioningStage, or None: with initial tasks, or a user's own source.
    source: ProcessingStage[Any, Any] | None
    reader: Reader | None  # None when a user's stage reads
    stages: list[ProcessingStage[Any, Any]]
    writer: Writer | None
    segments: list[Segment] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    initial: list[Task[Any]] = field(default_factory=list)  # tasks of a user's own kinds that the first stage gets
    key: bytes = field(default=KEY, repr=False)  # signs tasks of a user's own kinds that come back

    @property
    def partitioning(self) -> FilePartitioningStage | None:
        return self.source if isinstance(self.source, FilePartitioningStage) else None

    @property
    def io_names(self) -> tuple[str, str, str]:
        """Names of the stages that list, read and write the files; "" where there is none."""
        source, reader, writer = ("" if s is None else s.name for s in (self.source, self.reader, self.writer))
        return source, reader, writer

    @property
    def duplicate_labels(self) -> list[str]:
        """Labels of the stages that remove duplicates."""
        return [label for label, s in zip(self.labels, self.stages, strict=True) if s.traits.removes_duplicates]

    def token_field_before(self, index: int) -> str | None:
        """Return the field with the number of tokens of each document that a stage before this one added, if any."""
        counting = [stage for stage in self.stages[:index] if stage.traits.counts_tokens_in]
        return str(getattr(counting[-1], counting[-1].traits.counts_tokens_in)) if counting else None

    @property
    def text_field(self) -> str:
        """The field that the first stage with a text reads: what samples show of a document."""
        named = (getattr(s, name, None) for s in self.stages for name in ("text_field", "input_fields"))
        first = next((field for field in named if field), "text")
        while isinstance(first, (list, tuple)) and first:
            first = first[0]
        return first if isinstance(first, str) else "text"

    def kernel_groups(self) -> list[str]:
        """Return the compiled kernels that the job needs: the engine's own, and those its stages name."""
        return [RECORDS, *dict.fromkeys(g for s in self.stages for g in s.kernel_groups)]

    @property
    def has_own_tasks(self) -> bool:
        """True if the user has set the number of files of a task, which is then exact."""
        return self.partitioning is not None and self.partitioning.files_per_partition is not None

    @property
    def takes_all_files(self) -> bool:
        """True if a stage must get all files of the input in one task."""
        return self.reader is None and any(stage.traits.takes_all_files for stage in self.stages)

    @property
    def tasks_together(self) -> int:
        """Number of partitions that stages of the first segment take in one call of `process_batch`."""
        first = self.segments[0] if self.segments else Segment(0, 0, Resources())
        return max(
            (s.batch_size for s in self.stages[first.first : first.last] if s.supports_batch_processing()), default=1
        )

    def wants_frames(self) -> bool:
        """Return True if code of a user's stage accesses `data` or `to_pandas`.

        Workers then share one pandas, loaded before any cap.
        """
        kinds = [type(stage) for stage in self.user_stages()]
        return any(_names_of(getattr(f, "__code__", None)) & _FRAMES for kind in kinds for f in vars(kind).values())

    def user_stages(self) -> list[ProcessingStage[Any, Any]]:
        return [stage for stage in self.stages if not type(stage).__module__.startswith("tamis.")]

    def column_types(self) -> Mapping[str, str] | None:
        """Return the types of JSON fields in frames: those declared, or those that a scan found."""
        return None if self.reader is None else self.reader.column_types

    def sets_up(self, segment: Segment) -> bool:
        """Return True if a stage of the segment has a setup() of its own."""
        stages = self.stages[segment.first : segment.last]
        return any(type(stage).setup is not ProcessingStage.setup for stage in stages)

    def rules(self) -> list[RecordedRule]:
        """Return what may drop documents, in order, as the plan stores it; a stage that names no rules is one entry."""
        rules: list[RecordedRule] = []
        for label, stage in zip(self.labels, self.stages, strict=True):
            rules += [recorded_rule(label, r) for r in stage.rules()] or [RecordedRule(label)]
        return [*rules, RecordedRule("declared schema")] if self.writer is not None and self.writer.schema else rules

    def pickled(self) -> bytes:
        """Return the job for other processes; raise PipelineError if a stage of it cannot be sent there."""
        import cloudpickle

        try:
            return bytes(cloudpickle.dumps(self))
        except (TypeError, AttributeError, PicklingError) as exc:
            for stage in self.stages:
                try:
                    cloudpickle.dumps(stage)
                except (TypeError, AttributeError, PicklingError) as cause:
                    raise PipelineError(
                        f"stage {stage.name!r} holds or uses something that cannot be sent to worker processes "
                        f"({cause}): create locks, connections, open files and the like in setup(), or in the function"
                    ) from exc
            raise

    def keys(self) -> list[str]:
        """Return the fields that stages request by name, found while records are scanned."""
        columns = dict.fromkeys(c for s in self.stages for c in s.input_columns())
        if self.stages:
            columns.setdefault(ID_FIELD)  # for the verdicts on documents that a stage drops
        produced = {c for s in self.stages for c in s.output_columns()}
        return [c for c in columns if c not in produced]


def _names_of(code: CodeType | None) -> set[str]:
    """Return the attributes that a function and those inside it name."""
    if code is None:
        return set()
    inner = (_names_of(c) for c in code.co_consts if isinstance(c, CodeType))
    return set(code.co_names).union(*inner)


def recorded_rule(label: str, rule: DropRule) -> RecordedRule:
    """Convert a rule of a stage; limits that are not plain values become text, as in verdicts."""
    limits = json.loads(json.dumps(dict(rule.limits), default=str))
    return RecordedRule(label, **{**rule._asdict(), "limits": limits, "in_recipe": dict(rule.in_recipe)})


def make_job(
    name: str,
    stages: list[ProcessingStage[Any, Any]],
    mode: str = "streaming",
    documents: bool = False,
    on_cluster: bool = False,
) -> Job:
    """Sort the decomposed stages of a pipeline into source, reader, middle and writer, and form segments.

    `documents`: without a reader, the first stage gets documents that were given in memory. `on_cluster`: GPUs are
    those of its nodes.
    """
    job = _sort_stages(name, stages)
    _check_order(job)
    middle = job.stages
    for stage in middle:
        _check_needs(stage, on_cluster)
    job.labels = labels_of(stage.name for stage in middle)
    has_documents = job.reader is not None or documents
    job.segments = _segments(middle, mode) if has_documents or not middle else [_one_segment(middle)]
    if _is_written_apart(job, documents):
        job.segments.append(Segment(len(middle), len(middle), Resources()))
    for segment in job.segments:
        for i in range(segment.first, segment.last):
            middle[i].look_ahead(middle[i + 1 : segment.last])
    return job


def _sort_stages(name: str, stages: list[ProcessingStage[Any, Any]]) -> Job:
    """Return a job without segments: source, reader and writer by their places, the other stages in the middle."""
    middle = list(stages)
    source = middle.pop(0) if middle and isinstance(middle[0], FilePartitioningStage) else None
    reader = middle[0] if middle and isinstance(middle[0], Reader) else None
    last = middle[-1] if middle else None
    writer = last if isinstance(last, Writer) and not last.writes_itself else None
    middle = middle[1 if reader is not None else 0 : len(middle) - (1 if writer is not None else 0)]
    return Job(name, source, reader, middle, writer)


def _check_order(job: Job) -> None:
    """Raise PipelineError if a reader or a writer is in the middle of the pipeline."""
    for i, stage in enumerate(job.stages):
        if isinstance(stage, Reader) and job.source is None and job.reader is None and i:
            continue  # after a stage of the user's that names the files: it reads them whole
        if isinstance(stage, Writer) and stage.writes_itself and i + 1 == len(job.stages):
            continue
        if isinstance(stage, (Reader, Writer)):
            what = "begin with its reader" if isinstance(stage, Reader) else "end with its writer"
            raise PipelineError(f"a pipeline must {what}: move {stage.name!r}, or run two pipelines")


def _is_written_apart(job: Job, documents: bool) -> bool:
    """Return True if other workers write what the last stage returns.

    Encoding and syncing files is work for cores: a worker that has a GPU would leave it idle meanwhile. Only documents
    can be handed to another worker: what may be files is written where it is, and images stay in the worker that has
    them decoded.
    """
    plain = documents if job.reader is None else job.reader.batch is DocumentBatch
    on_gpu = job.segments[-1].resources.requires_gpu
    return job.writer is not None and plain and on_gpu and job.stages[-1].traits.gives_documents


def labels_of(names: Iterable[str]) -> list[str]:
    """Return stage names for verdicts, ledgers and messages, numbered where one appears twice.

    >>> labels_of(["length", "lang", "length"])
    ['length', 'lang', 'length#2']
    """
    counts: dict[str, int] = {}
    labels = []
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        labels.append(name if counts[name] == 1 else f"{name}#{counts[name]}")
    return labels


def _fixed_workers(stage: ProcessingStage[Any, Any]) -> int | None:
    """Return how many workers a stage asks for, itself or by `with_`; None: the engine decides."""
    n, per_node = stage.num_workers(), stage.num_workers_per_node()
    return int(n) if n is not None else max(1, int(per_node)) if per_node is not None else None


def gpus_needed(stage: ProcessingStage[Any, Any]) -> float:
    """Return the GPUs that one worker of a stage needs; a part of one needs a whole device to be there."""
    return max(stage.resources.gpus, 1.0 if stage.resources.requires_gpu else 0.0)


def _check_needs(stage: ProcessingStage[Any, Any], on_cluster: bool) -> None:
    """Reject unsatisfiable resource requests before the run starts."""
    for setting in ("num_workers", "num_workers_per_node"):
        if wrong := check_worker_count(setting, getattr(stage, setting)()):
            raise PipelineError(f"stage {stage.name!r}: {setting}(): {wrong}")
    unknown = sorted(set(stage.runtime_env or {}) - {"env_vars"})
    if unknown:
        raise PipelineError(
            f"stage {stage.name!r}: runtime_env has {unknown}; only env_vars is known: workers run in the environment "
            "of this program, so install there what a stage needs"
        )
    needed = gpus_needed(stage)
    if needed > count_gpus() and not on_cluster:  # those of a cluster are known when it is reached (backends/cluster)
        raise PipelineError(
            f"stage {stage.name!r} asks for {needed:g} GPU, this machine has {count_gpus()}; change its resources"
        )


def _one_segment(stages: list[ProcessingStage[Any, Any]]) -> Segment:
    """Return all stages as one segment, for a pipeline without a reader.

    Its tasks may be of any kind, and only documents can be passed from one worker to another.
    """
    needs = [stage.resources for stage in stages]
    gpus = max(r.gpus for r in needs)
    gpu_memory_gb = 0.0 if gpus else max(r.gpu_memory_gb for r in needs)
    most = Resources(max(r.cpus for r in needs), gpu_memory_gb, gpus, max(r.memory_gb for r in needs))
    return Segment(0, len(stages), most, next((n for n in map(_fixed_workers, stages) if n is not None), None))


def _segments(stages: list[ProcessingStage[Any, Any]], mode: str) -> list[Segment]:
    """Fuse neighbours with equal needs (streaming), or keep every stage apart (batch)."""
    segments: list[Segment] = []
    for i, stage in enumerate(stages):
        fixed = _fixed_workers(stage)
        last = segments[-1] if segments else None
        if last is not None and mode == "streaming" and last.resources == stage.resources and last.n_workers == fixed:
            segments[-1] = Segment(last.first, i + 1, last.resources, fixed, last.in_all)
        else:
            segments.append(Segment(i, i + 1, stage.resources, fixed, stage.num_workers() is not None))
    return segments or [Segment(0, 0, Resources())]
