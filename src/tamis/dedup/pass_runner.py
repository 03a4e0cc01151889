"""Running the passes of a workflow: settings, shared processes, each pass over documents, each task between passes.

Used by deduplications (workflow.py) and by curations (tamis/curation), which decide what the passes are.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from tamis._dataclasses import dataclass
from tamis.backends.alerting import OFF, watch_alerts
from tamis.backends.base import BaseExecutor
from tamis.backends.local import LocalExecutor
from tamis.backends.warm_process import WarmProcess
from tamis.dedup.task_process import EarlyProcess, TaskEnvironment, run_task, write_task
from tamis.engine.job import make_job
from tamis.engine.monitor.monitor import Watch
from tamis.engine.progress import Progress, ProgressState
from tamis.engine.run.input_identity import InputGuard
from tamis.engine.run.inputs import find_inputs
from tamis.engine.run.run_result import RunResult
from tamis.engine.run.settings import SETTINGS, Scope
from tamis.engine.run_record import RunRecorder
from tamis.engine.schema import LeakReport, read_plan
from tamis.errors import Incomplete, UsageError, error_of_run
from tamis.formats.input_files.listing import FileList
from tamis.kernels.loading.library import RECORDS, are_ready
from tamis.memory import counted_processes
from tamis.memory.budget import find_budget
from tamis.memory.sampler import Mark
from tamis.pipeline import Pipeline
from tamis.pipeline.pass_progress import planned_pass, print_line
from tamis.sizes import parse_size
from tamis.stages.base import ProcessingStage
from tamis.stores import scratch_files

if TYPE_CHECKING:
    from tamis.pipeline import Pipeline

_GO_ON = (
    "Raise the quarantine limit (--quarantine-limit) and run the same command again; or repair the files or leave them "
    "out, and start over with fresh (--fresh)"
)


@dataclass
class WorkflowSettings:
    """The settings of a run, split into those of the workflow and those that each pass gets.

    `shard`: compute this part of the input, as far as that can be done alone; `merge`: join what shards computed.
    `of_output`: file_size and partition_by, for the pass that writes the output.
    """

    of_passes: dict[str, Any] = field(default_factory=dict)
    fresh: bool = False
    shard: Any = None
    merge: bool = False
    of_output: dict[str, Any] = field(default_factory=dict)
    watch: Any = None
    alerts: Any = None

    @classmethod
    def parse(cls, settings: Mapping[str, Any], output: str, instead_of_sample: str) -> WorkflowSettings:
        """Check and split the settings of a run. `instead_of_sample`: a remedy, for the message about --sample."""
        remaining = dict(settings)
        _refuse_one_pass_settings(remaining, output, instead_of_sample)
        scratch_files.refuse_inside(output, remaining.get("scratch"))
        fresh, merge = bool(remaining.pop("fresh", False)), bool(remaining.pop("merge", False))
        shard = remaining.pop("shard", None)
        if shard is not None and merge:
            raise UsageError("give --shard to make one, or --merge to join all, not both")
        watch, alerts = remaining.pop("watch", None), remaining.pop("alerts", None)
        of_output: dict[str, Any] = {
            name: remaining.pop(name) for name in ("file_size", "partition_by") if name in remaining
        }
        return cls(remaining, fresh, shard, merge, of_output, watch, alerts)

    @property
    def counts_caller(self) -> bool:
        """True if the memory of this process counts, too."""
        return bool(self.of_passes.get("count_caller"))

    @property
    def scratch(self) -> str | None:
        scratch = self.of_passes.get("scratch")
        return None if scratch is None else str(scratch)

    def budget_bytes(self) -> int:
        """Return the part of the memory budget that is free for the workflow's own processes."""
        return counted_processes.budget_left(self.of_passes.get("memory"))

    def n_workers(self) -> int:
        return int(self.of_passes.get("workers") or len(os.sched_getaffinity(0)))

    def gpu_bytes(self) -> int:
        """Return how many bytes of GPU memory one process may take; 0: all there is."""
        limit = self.of_passes.get("gpu_memory")
        return 0 if limit is None else parse_size(limit, "gpu_memory")


def _refuse_one_pass_settings(settings: Mapping[str, Any], output: str, instead_of_sample: str) -> None:
    """Raise UsageError for a setting that means something only where one pass reads documents and writes them.

    Each pass would follow it by itself: a sample would be written as if it were the whole.
    """
    for setting in SETTINGS.values():
        name = setting.name
        if setting.scope is None or setting.scope < Scope.ONE_PASS or settings.get(name) in (None, setting.default):
            continue
        if name == "run_dir":
            raise UsageError(f"run_dir is for recipes without a writer; this writes to {output}, leave run_dir out")
        instead = "leave it out" if name == "mode" else instead_of_sample
        raise UsageError(f"{name} is for runs of one pass, and this takes several; {instead}")


class PassSession:
    """The executor, the alerts and the warm process that all passes of a workflow share."""

    def __init__(self, executor: Any, settings: WorkflowSettings) -> None:
        self.executor = executor
        self.watch = settings.watch
        self._settings = settings
        self.recorder: RunRecorder | None = None  # of the whole run; None for a shard, which is none
        self._warm_process: WarmProcess | None = None

    @property
    def warm_process(self) -> WarmProcess:
        assert self._warm_process is not None, "used outside of `processes`"
        return self._warm_process

    @property
    def is_cluster(self) -> bool:
        return bool(getattr(self.executor, "is_cluster", False))

    @contextlib.contextmanager
    def processes(self, folder: str, modules: Sequence[str], stages: Iterable[Any], start: bool) -> Iterator[None]:
        """Provide the process from which those of all passes, and of the tasks between them, are forked.

        It loads while the caller plans. `folder`: for its log; `modules`: what it imports in addition to the kernels of
        `stages`; `start`: whether it is certain to be needed.
        """
        self._warm_process = WarmProcess(os.path.join(folder, "processes.log"), modules=modules)
        groups = [RECORDS, *dict.fromkeys(k for s in stages if isinstance(s, ProcessingStage) for k in s.kernel_groups)]
        try:
            if start and are_ready(groups):
                self._warm_process.start(groups)
            yield
        finally:
            self._warm_process.close()

    @contextlib.contextmanager
    def recorded(self, name: str, run_dir: str, mark: Mark, started_s: float, resumes: bool) -> Iterator[RunRecorder]:
        """Record the whole run while the block works; a workflow that is a step of a curation uses its record."""
        if self.recorder is not None:
            yield self.recorder
            return
        budget_bytes = find_budget(self._settings.of_passes.get("memory"), os.environ).bytes
        recorder = RunRecorder(
            run_dir, name, mark, started_s, resumes=resumes, budget_bytes=budget_bytes, keeps_memory=True
        )
        self.recorder = recorder
        try:
            with recorder:
                yield recorder
        finally:
            self.recorder = None

    @contextlib.contextmanager
    def watch_alerts(self, name: str, run_dir: str, is_shown: bool) -> Iterator[None]:
        """Have all passes watched by the rules of the caller (backends/alerting.py)."""
        settings, show = self._settings, print_line if is_shown else None
        with watch_alerts(settings.alerts, self.watch, settings.of_passes, run_dir, name, show) as watch:
            self.watch = watch
            yield


class WorkflowInput:
    """The input of a workflow: a reader for each pass, and the check that all passes read the same files.

    `make_reader` returns a fresh reader; `guard` opens the check, once the folder of its file exists.
    """

    def __init__(self, name: str, make_reader: Callable[[], Any], guard: Callable[[], InputGuard]) -> None:
        self._name, self._open_guard = name, guard
        self.reader = make_reader
        self._guard: InputGuard | None = None

    @property
    def guard(self) -> InputGuard:
        if self._guard is None:
            self._guard = self._open_guard()
        return self._guard

    def files(self, folder: str, scratch: str | None) -> FileList:
        """List the input files as they are now. `folder`: where documents given in memory are kept."""
        return files_read_by(self.reader(), self._name, folder, scratch)


def files_read_by(reader: Any, name: str, folder: str = "", scratch: str | None = None) -> FileList:
    """List the files of a reader as they are now. `folder`: where documents given in memory are kept."""
    job = make_job(name, Pipeline(name, stages=[reader]).build())
    return find_inputs(job, None, None, folder, scratch=scratch).files


class PassRunner:
    """Runs the passes of one workflow. `scope`: the steps of a curation that it is for, where it is one of several."""

    def __init__(
        self,
        session: PassSession,
        settings: WorkflowSettings,
        progress: Progress = lambda _: None,
        scope: str = "",
    ) -> None:
        self.session, self.settings, self.progress = session, settings, progress
        self._scope = scope
        self.leaks: list[LeakReport] = []  # of all passes

    def execute(self, pipeline: Pipeline, label: str, **more: Any) -> RunResult:
        """Run one pass over documents and return its result. `more`: settings of this pass."""
        session = self.session
        settings = {**self.settings.of_passes, "alerts": OFF, **more}  # the watch is that of the whole
        with self._recorded(label) as progress:
            result = execute_pass(
                pipeline, label, session.executor, session._warm_process, progress, session.watch, settings
            )
            if session.recorder is not None:
                session.recorder.note_books(result.ledger, result.peak_bytes)
                if result.work is not None:
                    session.recorder.note_work(result.work)
        self.leaks += result.leaks
        return result

    def plan(self, labels: Sequence[str], weights: Mapping[str, float] | None = None) -> None:
        """Record which passes are to come, in order. `weights`: of those whose work is not that of their kind."""
        if self.session.recorder is not None:
            planned_weights = weights or {}
            self.session.recorder.plan(
                [planned_pass(label, self._scope, planned_weights.get(label)) for label in labels]
            )

    @contextlib.contextmanager
    def _recorded(self, label: str) -> Iterator[Progress]:
        """Record a pass or a decision while the block runs; yield the function that takes its progress."""
        recorder, show = self.session.recorder, self.progress
        if recorder is None:
            yield show
            return

        def advance(state: ProgressState) -> None:
            recorder.advance(state)
            show({**state, "left_s": recorder.record.left_s})

        planned = planned_pass(label, self._scope)
        with recorder.doing(planned.label, planned.title, planned.weight):
            yield advance

    def execute_checked(
        self, pipeline: Pipeline, label: str, source: WorkflowInput, folder: str, **more: Any
    ) -> RunResult:
        """Run a pass over the input.

        Raise RunConflict if that is not the input of the first pass, before it or after it.
        """
        source.guard.check(source.files(folder, self.settings.scratch))
        result = self.execute(pipeline, label, **more)
        source.guard.confirm(read_plan(os.path.join(result.run_dir, "plan.json")).inputs, result.ledger)
        return result

    def start_early(self, folder: str, module: str, function: str, reserved_bytes: int) -> EarlyProcess:
        """Start a process for a later task, which prepares while passes run."""
        gpu_bytes = self.settings.gpu_bytes()
        return EarlyProcess(folder, self.session.warm_process, module, function, gpu_bytes, reserved_bytes)

    def run_task(
        self,
        folder: str,
        task: Any,
        module: str,
        label: str = "decision",
        bucket_url: str = "",
        early: EarlyProcess | None = None,
    ) -> None:
        """Run the `main` of a module between passes, in a separate process, under the budget (task_process.py)."""
        write_task(folder, TaskEnvironment(self.settings.budget_bytes(), bucket_url), task)
        kind = label.partition("-")[0]
        with self._recorded(label) as progress:

            def report(state: ProgressState) -> None:
                progress({**state, "pass_label": kind})

            run_task(folder, self.session.warm_process, report, module, early)


def execute_pass(
    pipeline: Pipeline,
    label: str,
    executor: BaseExecutor | None,
    warm_process: WarmProcess | None,
    progress: Progress,
    watch: Watch | None,
    settings: Mapping[str, Any],
) -> RunResult:
    """Execute one pass of a workflow; raise if it did not succeed.

    Runs on the executor that the user gave, or on one whose processes are forked from the workflow's warm
    process. `progress` receives the label of the pass.
    """
    if executor is None:
        executor = local = LocalExecutor()
        local.warm_process = warm_process
    with executor.watched_by(lambda state: progress({**state, "pass_label": label}), watch, is_part=True):
        result = pipeline.execute(executor, **settings)
    if result.exit_code == Incomplete.exit_code:
        raise Incomplete(f"{planned_pass(label, '').title}: {result.message}\n{_GO_ON}")
    if result.exit_code:
        raise error_of_run(result.exit_code, f"{planned_pass(label, '').title}: {result.message}")
    return result
