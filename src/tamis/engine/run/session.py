"""The work of a run while its workers are open: sampling steps, then one schema and the size of output files.

Covers: one supervisor and event loop for each step, and what to do when a step ends early. Does not cover: what comes
before (plan, budget) and after (verdict, manifest): see run.py.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable

from tamis import files
from tamis._dataclasses import dataclass
from tamis.engine.ledger import Ledger
from tamis.engine.messages import StagedFile
from tamis.engine.progress import Progress
from tamis.engine.run import disk
from tamis.engine.run.admission import Admission
from tamis.engine.run.event_loop import EventLoop, LastWork
from tamis.engine.run.observation import Observation, Totals
from tamis.engine.run.output.commit import Committer
from tamis.engine.run.output.directory import Past
from tamis.engine.run.output.file_size import (
    OutputPart,
    by_partition,
    output_parts,
    plan_cuts,
    plan_partitions,
    plan_value_joins,
)
from tamis.engine.run.output.sample_store import SampleStore
from tamis.engine.run.planning import ExecutionContext, OutputPlanner
from tamis.engine.run.settings import DEFAULT_FILE_SIZE
from tamis.engine.schema import EventKind, FileKind
from tamis.engine.supervisor.actions import ReplaceFiles
from tamis.engine.supervisor.alert_orders import AlertOrders
from tamis.engine.supervisor.cursor import Cursor
from tamis.engine.supervisor.state import Config, FatalKind, RunState
from tamis.engine.supervisor.supervisor import Supervisor
from tamis.engine.units import Rewrite
from tamis.engine.worker.config import OutputSpec
from tamis.engine.workers_interface import Workers
from tamis.errors import BudgetError, Incomplete, PipelineError, RunConflict, StageError, TamisError
from tamis.formats import hive
from tamis.formats.registry import LINES, TABLES
from tamis.memory.predictor import Predictor
from tamis.sizes import format_size, parse_size


@dataclass
class DescribeSamples:
    """The last work of a step: a worker makes excerpts of the samples, which without one show no evidence."""

    store: SampleStore
    staged: str

    @property
    def _path(self) -> str:
        return os.path.join(self.staged, "samples.jsonl")

    def begin(self, supervisor: Supervisor) -> bool:
        try:
            has_records = self.store.write_chosen(self._path)
        except OSError:  # a disk that is full costs samples, never a run
            return False
        if has_records:
            supervisor.describe_samples(self._path)
        return has_records

    def end(self, supervisor: Supervisor) -> None:
        self.store.settle(self._path, supervisor.described)
        for path in filter(None, (self._path, supervisor.described)):
            files.remove(path)


@dataclass
class WorkSession:
    """Drives the open workers of a run; `totals` adds up what they do."""

    context: ExecutionContext
    planner: OutputPlanner
    observation: Observation
    admission: Admission
    workers: Workers
    config: Config
    predictors: list[Predictor]
    totals: Totals
    progress: Progress

    def deliver(self, steps: list[float], past: Past) -> None:
        """Do what is left of all sampling steps, as far as the user's choices allow.

        `totals.share` is what they delivered.
        """
        run_dir = self.context.dir
        samples = SampleStore(run_dir.path) if self.context.takes_samples else None
        describe = DescribeSamples(samples, run_dir.staged) if samples is not None else None
        committer = Committer(
            run_dir.output,
            run_dir.quarantine,
            run_dir.log,
            self.workers.wake,
            run_dir.remote,
            samples,
            self._is_synced(),
        )
        orders = AlertOrders()
        self.observation.plan(steps)
        try:
            for number, share in enumerate(steps):
                if number and not self._fits_disk(steps[number - 1], share):
                    break
                supervisor = Supervisor(self.config, self.planner.cursor(past, number), self.predictors, number, orders)
                with self.observation.sampling_step(number):
                    self._drive(supervisor, committer, share, describe)
                    self.observation.note_books(self.totals.ledger, supervisor.queue.ledger)
                if number and self._gives_up(supervisor.status, share):
                    run_dir.retract(number)
                    self.totals.ledger = run_dir.recover(self.planner.plain_size).ledger
                    break
                self.totals.add(supervisor)
                self._check_stopped(supervisor.status, self.totals.ledger)
                self.totals.share = share
            self._reconcile_schemas(committer)
            if joins := self._cut_files(committer):
                self._without_input("sizing", lambda s: s.rewrite(joins), committer)
        finally:
            committer.close()

    def _is_synced(self) -> bool:
        """Return whether files are synced before they are committed; where they need not be, note when that holds."""
        writer, run_dir = self.context.job.writer, self.context.dir
        return writer is None or writer.is_synced or not run_dir.note_boot()

    def _drive(
        self, supervisor: Supervisor, committer: Committer, share: float, last_work: LastWork | None = None
    ) -> None:
        """Run a supervisor to its end; an interrupt stops it, with the commits that are under way."""
        monitor = self.observation.monitor
        loop = EventLoop(
            supervisor,
            self.workers,
            committer,
            self.observation.event,
            monitor,
            lambda up: self.admission.admit(up, self.config),
        )

        def tick(final: bool = False) -> None:
            if self.admission.refusal is not None and not supervisor.pool.nodes and not final:
                raise self.admission.refusal  # no node can take part: the run would wait forever
            self.observation.tick(supervisor, self.workers, loop.used_bytes, self.totals, share, loop.act, final)

        monitor.begin(supervisor)
        try:
            loop.run(tick, last_work)
        except KeyboardInterrupt:
            try:
                self.progress({"phase": "interrupted"})
            finally:
                loop.stop("interrupted")
            raise
        finally:
            tick(final=True)

    # -- steps that end early -----------------------------------------------------------------------------------------
    def _check_stopped(self, status: RunState, ledger: Ledger) -> None:
        """Raise the error that says why a supervisor stopped early, if it did."""
        n_committed = f"{ledger.written.n} documents are committed"
        if status.fatal:
            raise self._fatal_error(status, n_committed)
        if status.stopping:
            raise Incomplete(f"{status.stopping}. {n_committed}; run the same command again to resume")
        if status.infeasible:
            raise Incomplete(status.infeasible[0])

    def _fatal_error(self, status: RunState, n_committed: str) -> TamisError:
        reason = status.fatal
        match status.fatal_kind:
            case FatalKind.DISK if disk.is_full(reason):
                return disk.no_room(reason, self.context.folders)
            case FatalKind.BUDGET:
                return BudgetError(f"{reason}. {n_committed}")
            case FatalKind.USAGE:
                return PipelineError(reason)
            case FatalKind.STAGE:
                return StageError(f"{reason}. {n_committed}; the traceback is in {self.context.dir.path}/worker.log")
            case FatalKind.INPUT:
                return RunConflict(f"{reason}. Use nothing of the output; start over with fresh (--fresh)")
        return TamisError(f"{reason}. Everything committed so far is kept; see {self.context.dir.path}/worker.log")

    def _fits_disk(self, done_share: float, next_share: float) -> bool:
        """Return True if the next sampling step fits the disk, judged by what the steps so far took."""
        if not self._prefers_sample or self.context.dir.remote is not None:
            return True
        needed = self.totals.ledger.written_bytes / done_share * (next_share - done_share) * 1.05
        free = shutil.disk_usage(self.context.dir.output).free
        if needed > free:
            self._note_why_sampled(
                next_share,
                f"it would take {format_size(needed)} more on the disk, {format_size(free)} are free. Make room",
            )
        return needed <= free

    def _gives_up(self, status: RunState, share: float) -> bool:
        """Return True if a sampling step ran out of memory or disk and the user prefers the sample before it."""
        if not self._prefers_sample:
            return False
        if status.fatal_kind is FatalKind.DISK and disk.is_full(status.fatal):
            self._note_why_sampled(share, "the disk was full before that was done. Make room")
        elif status.infeasible and not status.fatal:
            self._note_why_sampled(share, f"{status.infeasible[0]}. Give more memory")
        elif status.fatal_kind is FatalKind.BUDGET:
            self._note_why_sampled(share, f"{status.fatal}. Give more memory")
        return bool(self.totals.why_sampled)

    @property
    def _prefers_sample(self) -> bool:
        return self.context.settings.on_infeasible == "sample"

    def _note_why_sampled(self, share: float, reason: str) -> None:
        self.totals.why_sampled = f"{'all' if share == 1.0 else f'{share:.0%}'} of them could not be done: {reason}"
        self.context.record.note("sample", share, "adaptation", self.totals.why_sampled)

    # -- one schema for all files -------------------------------------------------------------------------------------
    def _reconcile_schemas(self, committer: Committer) -> None:
        """Rewrite files (JSONL -> Parquet) under one schema, the union of those that partitions have."""
        if self.planner.output_spec().format not in TABLES:
            return
        files = [f for f in self.context.dir.recover(histograms=False).files.values() if f.is_output and f.schema]
        if len({f.schema for f in files}) < 2:
            return
        distinct = sorted({json.dumps([f.schema, f.observed or "{}"]) for f in files})
        joiner = self._without_input("schema", lambda s: s.join_schemas(distinct), committer)
        union_schema = json.loads(joiner.schema)[0]
        target = self.context.dir.target
        work = [
            Rewrite(union=joiner.schema, paths=[f"{target}/{f.name}"], old=[f.name])
            for f in files
            if f.schema != union_schema
        ]
        self._without_input("schema", lambda s: s.rewrite(work), committer)

    # -- files of a size ----------------------------------------------------------------------------------------------
    def _cut_files(self, committer: Committer) -> list[Rewrite]:
        """Cut output files to the requested size, and return those that are to be joined.

        Shards leave this to the run that joins them.
        """
        target_bytes, spec = self.context.settings.file_bytes, self.planner.output_spec()
        is_part = self.context.settings.shard is not None or self.context.job.writer is None
        if is_part or spec.format not in (*TABLES, *LINES):
            return []
        run_dir = self.context.dir
        if spec.partition_by:
            target_bytes = target_bytes or parse_size(DEFAULT_FILE_SIZE)
            if work := plan_partitions(output_parts(run_dir.log.read()), spec.partition_by, run_dir.target):
                self._without_input("partitioning", lambda s: s.rewrite(work), committer)
        if target_bytes is None:
            return []
        values = by_partition(output_parts(run_dir.log.read()))
        if cuts := [cut for parts in values.values() for cut in plan_cuts(parts, target_bytes, run_dir.target)]:
            self._without_input("sizing", lambda s: s.rewrite(cuts), committer)
            values = by_partition(output_parts(run_dir.log.read()))
        return self._rename_whole(values, spec, target_bytes, committer)

    def _rename_whole(
        self, values: dict[hive.Values, list[OutputPart]], spec: OutputSpec, target_bytes: int, committer: Committer
    ) -> list[Rewrite]:
        """Give files that stay whole their final names; return which ones are to be joined."""
        run_dir = self.context.dir
        plan = run_dir.read_plan()
        is_added = self.context.job.writer is not None and self.context.job.writer.mode == "append"
        name = f"part-{plan.run_id[-6:]}" if is_added and plan is not None else "part"  # next to files of other runs
        folders = hive.folders(spec.partition_by, values)
        joins = plan_value_joins(values, folders, target_bytes, run_dir.target, spec.extension, name)
        if renames := [join for join in joins if join.renames and run_dir.remote is None]:
            self._rename(renames, committer)
        return [join for join in joins if join not in renames]

    def _rename(self, renames: list[Rewrite], committer: Committer) -> None:
        """Give whole files their final names, which takes no worker."""
        with self.observation.phase("sizing"):
            for number, work in enumerate(renames):
                committer.submit(ReplaceFiles(-1, work.old, self._linked(work, number), work.names))
            for _ in renames:
                result = committer.results.get()
                self._check_stopped(RunState(fatal=result.error, fatal_kind=FatalKind.DISK), self.totals.ledger)
                self.observation.event(EventKind.COMMIT, {"partition": result.partition, "bytes": result.n_bytes})

    def _linked(self, work: Rewrite, number: int) -> list[StagedFile]:
        """Link committed files to staged ones: after a crash, these tell which of the new names are not committed."""
        staged = []
        for i, (path, facts) in enumerate(zip(work.paths, work.regroups, strict=True)):
            link = os.path.join(self.context.dir.staged, f"rename-{number}-{i}.out")
            try:
                files.publish(path, link)
            except OSError as exc:
                self._check_stopped(RunState(fatal=str(exc), fatal_kind=FatalKind.DISK), self.totals.ledger)
            staged.append(
                StagedFile(
                    link,
                    FileKind.OUTPUT,
                    facts.n_rows,
                    os.path.getsize(link),
                    self.planner.output_spec().extension,
                    facts.content,
                    facts.schema,
                    next(iter(facts.observed), None),
                    data_bytes=facts.data_bytes,
                    is_sized=True,
                    partition=facts.partition,
                )
            )
        return staged

    def _without_input(self, phase: str, prepare: Callable[[Supervisor], None], committer: Committer) -> Supervisor:
        """Drive a supervisor whose work is not in the input. `phase`: what is shown meanwhile."""
        empty = type(self.context.inputs.files)()
        supervisor = Supervisor(self.config, Cursor(empty, []), self.predictors)
        prepare(supervisor)
        with self.observation.phase(phase):
            self._drive(supervisor, committer, 1.0)
        self._check_stopped(supervisor.status, Ledger())
        return supervisor
