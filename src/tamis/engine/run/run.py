"""An execution of a job: plan the output or resume it, open workers, drive the work, close the run.

`Run` owns the parts, in the order in which they work: `OutputPlanner` (planning.py), `Observation` (observation.py),
`Admission` (admission.py), `WorkSession` (session.py), `RunCloser` (closing.py). They share an `ExecutionContext`; each
can be tested alone.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence

from tamis import secrets
from tamis.engine.job import Job
from tamis.engine.monitor.monitor import Watch
from tamis.engine.progress import Progress
from tamis.engine.run import disk
from tamis.engine.run.admission import Admission
from tamis.engine.run.budget.expectation import Expectation
from tamis.engine.run.budget.settings_record import note_budget, note_models, note_prediction, note_shares, note_sizes
from tamis.engine.run.budget.shares import refuse_too_large, share_budget
from tamis.engine.run.closing import RunCloser
from tamis.engine.run.compiling import compile_missing
from tamis.engine.run.console import Console
from tamis.engine.run.identity import differences
from tamis.engine.run.inputs import Inputs
from tamis.engine.run.observation import Observation, Totals
from tamis.engine.run.output.directory import Past, RunDir
from tamis.engine.run.output.join_shards import can_join_again, drop_shards, join_shards
from tamis.engine.run.planning import ExecutionContext, OutputPlanner
from tamis.engine.run.run_result import RunResult, Show
from tamis.engine.run.session import WorkSession
from tamis.engine.run.settings import DEFAULT_FILE_SIZE, RunSettings
from tamis.engine.run_record import RunRecorder
from tamis.engine.schema import RunPlan
from tamis.engine.worker.config import WorkerConfig
from tamis.engine.workers_interface import WorkersFactory
from tamis.errors import Incomplete, UsageError
from tamis.formats.registry import LINES, PACKERS, TABLES
from tamis.memory.budget import Budget, find_budget
from tamis.memory.sampler import Mark, record_peak
from tamis.stages.io import Writer
from tamis.stores import options as stores

_COMPILED_S = 3.0  # making workers ready takes longer only where kernels are compiled


class Run:
    """One run of a job into an output. Call `execute` once."""

    def __init__(
        self,
        job: Job,
        inputs: Inputs,
        settings: RunSettings,
        make_workers: WorkersFactory,
        output: str,
        progress: Progress | None = None,
        watch: Watch | None = None,
        is_part: bool = False,
        show: Show = lambda _: None,
    ) -> None:
        """Create a run. `is_part`: one pass of a workflow, which is predicted and measured as a whole."""
        secrets.learn(*job.stages, job.source, job.reader, job.writer)
        options = (job.writer.write_kwargs or {}).get("storage_options") if job.writer is not None else None
        stores.remember(output, options, "write_kwargs: storage_options")
        self.dir = RunDir(output, settings.scratch)
        self._started_s = time.monotonic()
        self._job, self._inputs, self._settings = job, inputs, settings
        self._make_workers, self._watch, self._is_part = make_workers, watch, is_part
        self._reported_progress, self._show = progress, show
        self._progress: Progress = progress or (lambda _: None)

    def execute(self) -> RunResult:
        """Do what is left of the run and return its result."""
        # From the environment it is found again, by the function that says so to the user.
        memory = None if self._settings.origin("memory") == "environment" else self._settings.memory
        budget = find_budget(memory, os.environ)
        mode = self._job.writer.mode if self._job.writer is not None else "ignore"
        self._check_file_size()
        if not self._settings.merge:  # files of shards may be there already: each is checked when it is joined
            self.dir.check_foreign(mode)
        self.dir.open()
        try:
            with record_peak(self._settings.count_caller) as mark:
                return self._execute_locked(budget, mode, mark)
        except OSError as exc:
            raise disk.explained(exc, [self.dir.output, self.dir.scratch]) from exc
        finally:
            self.dir.tidy()
            self.dir.close()

    def _check_file_size(self) -> None:
        """Refuse a size of files, and files by value, for formats whose files are not joined."""
        writer, settings = self._job.writer, self._settings
        partition_by = writer.partition_by or settings.partition_fields if writer is not None else ()
        if writer is not None and partition_by:
            check_partitioning(writer, partition_by)
        is_chosen = settings.file_bytes is not None and settings.file_size != DEFAULT_FILE_SIZE
        if is_chosen and writer is not None and writer.format in PACKERS:
            raise UsageError(
                f"file_size: it is for JSONL, Parquet and Arrow, and {writer.name} writes {writer.format}; leave it out"
            )

    def _execute_locked(self, budget: Budget, mode: str, mark: Mark) -> RunResult:
        base = self.dir.target if self._settings.merge is True else str(self._settings.merge or "")
        requested = "--fresh" if self._settings.fresh else ""
        if self.dir.is_half_forgotten():
            requested = "an earlier --fresh, which did not end"
        if self.dir.may_have_lost_files():
            requested = "a restart of the machine"
        # Files of shards that were joined exist in this output only.
        if (requested or mode == "overwrite") and (not base or can_join_again(base, requested)):
            self.dir.forget(everything=not self.dir.is_last_pass())
        if base and self.dir.read_manifest() is None:
            join_shards(base, self.dir, differences, may_hold_others=mode == "append")
        context = ExecutionContext(
            self._job, self._inputs, self._settings, self.dir, mark=mark, started_s=self._started_s
        )
        result = self._plan_and_work(context, budget)
        if base and result.exit_code in (0, Incomplete.exit_code):
            drop_shards(base)
        return result

    def _plan_and_work(self, context: ExecutionContext, budget: Budget) -> RunResult:
        planner = OutputPlanner(context)
        closing = RunCloser(context, planner)
        plan, steps = planner.plan()
        manifest = self.dir.read_manifest()
        past = self.dir.recover(planner.plain_size, histograms=manifest is not None)
        if manifest is not None and manifest.steps == steps and manifest.agrees_with(past.ledger):
            return closing.already(manifest, past)
        self.dir.check_links()
        self.dir.remove_json("manifest.json")
        self.dir.make_scratch()
        note_budget(context.record, budget, self._settings)
        console = Console(self.dir.path, self._show, self._settings.shows_output)
        observation = Observation(context, self._progress, self._watch, console)
        with contextlib.closing(observation), contextlib.ExitStack() as stack:
            if not self._is_part:
                recorder = RunRecorder(
                    self.dir.path,
                    self._job.name,
                    context.mark,
                    self._started_s,
                    run_id=plan.run_id,
                    resumes=self.dir.has_commits(),
                    budget_bytes=budget.bytes,
                    input_bytes=self._inputs.files.total_bytes,
                )
                observation.recorder = stack.enter_context(recorder)
            return self._work(context, planner, observation, closing, budget, plan, steps, past)

    def _work(
        self,
        context: ExecutionContext,
        planner: OutputPlanner,
        observation: Observation,
        closing: RunCloser,
        budget: Budget,
        plan: RunPlan,
        steps: list[float],
        past: Past,
    ) -> RunResult:
        self._progress({"phase": "starting"})
        refuse_too_large(budget.bytes, [(s.name, s.least_bytes()) for s in self._job.stages])
        # Kernels first, before any other process is started: what compiling takes is part of the peak.
        started_s = time.monotonic()
        compile_missing(self._job.kernel_groups(), budget.bytes, self._settings.count_caller, self._reported_progress)
        compiled_s = time.monotonic() - started_s
        workers = self._make_workers(
            self._job,
            self._worker_config(planner, steps, budget),
            os.path.join(self.dir.path, "worker.log"),
            self._settings.count_caller,
        )
        admission = Admission(context, observation.event)
        try:
            workers.open()
            shares = share_budget(budget.bytes, workers.server, self._settings, context.record, self._job)
            config = admission.config(budget, shares, workers.is_remote)
            expectation = Expectation(
                self._job,
                plan.stages,
                observation.outcome,
                started_s=self._started_s + compiled_s,
                is_usual=compiled_s < _COMPILED_S,
                is_part=self._is_part,
            )
            predictors = expectation.models(config.largest_unit_bytes)
            config.expected_s = expectation.seconds_per_byte
            config.proven = {book.name for book in past.ledger.stages if book.into.n > book.quarantined.n}
            record, settings = context.record, self._settings
            note_shares(record, settings, shares, config, self._job, workers.server)
            note_sizes(record, settings, self._inputs, config, len(self._job.segments), self.dir.scratch)
            note_models(record, predictors, expectation.from_profile, len(expectation.past))
            expectation.begin(self._inputs, config, shares, predictors, len(steps), past.ledger)
            note_prediction(record, expectation.prediction)
            observation.save_record(expectation.prediction)
            observation.start(config, plan, past)
            session = WorkSession(
                context,
                planner,
                observation,
                admission,
                workers,
                config,
                predictors,
                Totals(past.ledger),
                self._progress,
            )
            self._deliver(session, expectation, steps, past)
            return closing.finish(plan, steps, session.totals, observation, budget.bytes, expectation.prediction)
        finally:
            workers.close()
            observation.console.close()

    def _deliver(self, session: WorkSession, expectation: Expectation, steps: list[float], past: Past) -> None:
        """Do the work; keep what was learned, also if it fails."""
        context, observation, totals = session.context, session.observation, session.totals
        try:
            session.deliver(steps, past)
            expectation.end(context.mark.peak_bytes, totals.ledger)
        finally:
            observation.stop()
            expectation.save(session.predictors)
            observation.outcome.note(context.record, session.predictors, totals.counters)
            observation.save_record(expectation.prediction)

    def _worker_config(self, planner: OutputPlanner, steps: list[float], budget: Budget) -> WorkerConfig:
        settings, run_dir = self._settings, self.dir
        return WorkerConfig(
            staged=run_dir.staged,
            scratch=run_dir.scratch,
            max_record_bytes=settings.max_record_bytes,
            windows=list(zip([0.0, *steps[:-1]], steps, strict=True)),
            output=planner.output_spec(),
            keep_rejected=settings.keep_rejected,
            stores=stores.settings(),
            output_url=run_dir.remote.url if run_dir.remote is not None else "",
            remote_scratch=run_dir.remote_scratch,
            sends_blocks=bool(run_dir.remote_scratch) and settings.mode == "batch",
            plan_path=run_dir.plan_path,
            budget_bytes=budget.bytes,
            fail_fast=settings.fail_fast,
        )


def check_partitioning(writer: Writer, partition_by: Sequence[str]) -> None:
    """Raise UsageError if documents of a writer cannot be written by the values of these fields."""
    if writer.format not in (*LINES, *TABLES) or writer.writes_itself:
        raise UsageError(f"partition_by: it is for JSONL, Parquet and Arrow, and {writer.name} writes other files")
    for field in partition_by:
        if (writer.fields is not None and field not in writer.fields) or (
            writer.schema is not None and field not in writer.schema
        ):
            raise UsageError(f"partition_by: {writer.name} does not write the field {field!r}; add it to its fields")
