"""A deduplication from beginning to end: its parts, and the order in which they are used.

OutputDirectory    the output: its lock, starting over, the record that everything is done
WorkDirectory      the files between passes, with the State that passes leave for each other
WorkflowInput      readers of the input, and the check that it stays the same
PassRunner         executes pipelines, and tasks in separate processes
SolverLauncher     has the solver decide between passes
Procedure          what the passes are: KeyComparison, or that of substrings, of a removal by ids or of a join

Passes over documents are runs of the engine with all its promises. The process that drives them stays small: it imports
neither numpy nor Arrow. Files between passes are removed at the end, but for the tables that people read.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from tamis import files
from tamis._dataclasses import dataclass
from tamis.backends.alerting import summary_of
from tamis.backends.execution import leave_report
from tamis.dedup import state
from tamis.dedup.alarms import LossLimit
from tamis.dedup.expected import DedupExpectation
from tamis.dedup.key_comparison import KeyComparison, key_pipeline
from tamis.dedup.output_directory import OutputDirectory
from tamis.dedup.pass_runner import PassRunner, PassSession, WorkflowInput, WorkflowSettings
from tamis.dedup.passes import DedupResult, Passes
from tamis.dedup.solver_launcher import SolverLauncher
from tamis.dedup.solver_task import AppendToIndex
from tamis.dedup.state import DedupRecord, FirstPass, IndexPin, IndexPins, Summary
from tamis.dedup.work_directory import WorkDirectory
from tamis.engine.ledger import Ledger
from tamis.engine.progress import Progress
from tamis.engine.run.input_identity import InputGuard, identify_inputs
from tamis.engine.run.output.directory import RunDir
from tamis.engine.run.run_result import RunResult
from tamis.engine.run_record import RunCounts, RunRecord, RunRecorder, load_run_record
from tamis.errors import PipelineError, RunConflict, UsageError
from tamis.memory.sampler import Mark, record_peak
from tamis.pipeline import Pipeline
from tamis.pipeline.pass_progress import print_line, progress_listener
from tamis.stages.base import ProcessingStage
from tamis.stores.urls import is_bucket

if TYPE_CHECKING:
    from tamis.dedup.nemo_compat.id_files import IdFiles
    from tamis.formats.input_files.listing import FileList


class Procedure(Protocol):
    """The passes of a workflow. The workflow does everything around them."""

    def plan(self, workflow: Workflow) -> list[str]:
        """Return the labels of the passes to come, in order, before anything is opened."""

    def shard_stage(self, passes: Passes) -> ProcessingStage[Any, Any] | None:
        """Return the stage of the first pass if calls of their own may run it on parts of the input, else None."""

    def decide(self, workflow: Workflow) -> Summary:
        """Run all passes up to the decision; what an earlier call finished is not done again."""

    def remove(self, workflow: Workflow) -> RunResult:
        """Run the pass that writes the output."""

    def check_counts(self, workflow: Workflow, summary: Summary, removed: RunResult) -> Summary:
        """Compare what was decided with what was removed; return entries for the summary."""


@dataclass(frozen=True)
class Host:
    """Services of a curation for a workflow that is one of its steps.

    `check_loss` raises where too much would be removed.
    """

    runner: PassRunner
    guard: InputGuard
    check_loss: Callable[[Summary], None]


class Workflow:
    """One deduplication. Call `run` once.

    `settings`: those of a run (memory, workers, scratch, timeout, fresh, ...). `progress`: a function, or whether
    progress is shown.
    """

    def __init__(
        self,
        passes: Passes,
        settings: Mapping[str, Any] | None = None,
        progress: Progress | bool | None = None,
        executor: Any = None,
        host: Host | None = None,
    ) -> None:
        self.passes, self._progress, self._host = passes, progress, host
        if host is None:
            parsed = WorkflowSettings.parse(settings or {}, passes.output, passes.instead_of_sample)
            self.runner = PassRunner(PassSession(executor, parsed), parsed)
        else:
            self.runner = host.runner
        self.settings = self.runner.settings
        if self.settings.of_passes.get("keep_rejected") and passes.writer is None and passes.step is None:
            raise UsageError("keep_rejected: duplicates are only found here, and nothing is removed; leave it out")
        self.procedure = passes.procedure or KeyComparison()
        self.output = OutputDirectory(passes.output, "deduplication", "dedup.json")
        self.work = WorkDirectory(self.output.run_dir, self.settings.scratch)
        self.duplicates = os.path.join(self.output.run_dir, "duplicates")
        self.solver = SolverLauncher(self.runner, self.work, self.duplicates)
        self.input = WorkflowInput(passes.name, self._reader, self._guard)
        self.scratch_bytes = 0  # the most that files between passes took so far
        self._mark = Mark()  # of the memory in use

    def _reader(self) -> Any:
        """Return a fresh reader of the input, which never includes the output of this deduplication."""
        reader: Any = self.passes.source()
        reader.leave_out = (self.passes.step.output if self.passes.step is not None else self.output.path,)
        return reader

    def _guard(self) -> InputGuard:
        return self._host.guard if self._host is not None else InputGuard(self.work.state.inputs_file)

    # -- running ------------------------------------------------------------------------------------------------------
    def run(self) -> DedupResult:
        """Run all passes, and the removal.

        Progress goes to the given function, or is shown (True) with a sentence at the end.
        """
        settings, passes, session = self.settings, self.passes, self.runner.session
        if settings.shard is not None or settings.merge:
            self._shard_stage()
        is_shown = self._progress is True
        with (
            progress_listener(self._progress) as self.runner.progress,
            session.watch_alerts(passes.name, self.output.run_dir, is_shown),
        ):
            result = self.run_passes() if settings.shard is None else self.run_shard()
        result.leaks, result.alerts = self.runner.leaks, summary_of(session.watch)
        if is_shown:
            print_line(f"{passes.name}: {result.in_one_line(passes.writer is not None)}")
        return result

    def run_passes(self) -> DedupResult:
        """Run all passes under the lock of the output, resuming what an earlier call began."""
        started_s = time.monotonic()
        with (
            record_peak(self.settings.counts_caller) as self._mark,
            self.output.locked(self, self.settings.fresh),
            self._processes(),
        ):
            record = self._read_record()
            if record is not None:
                return self._already(record)
            self._check_identity(self.work.state.read_identity())
            self.work.state.write_identity(self._identity())
            with self.runner.session.recorded(
                self.passes.name, self.output.run_dir, self._mark, started_s, self.has_commits()
            ) as recorder:
                return self._run_recorded(recorder, started_s)

    def _already(self, record: DedupRecord) -> DedupResult:
        """Return the result of a call that has nothing left to do but what an interrupt left at the end."""
        self._check_identity(record.identity)
        if self._host is None:  # the passes of a curation check its input
            self.output.check_input(self.files(), record.inputs)
            self._check_index(record.compared.pins)
        self._write_ids(record)
        self._remove_finished_work()
        result = DedupResult("already", self.output.path, self.duplicates, cast("Summary", record.summary))
        result.counted, result.record = self.passes.counted, load_run_record(self.output.run_dir)
        return result

    def _run_recorded(self, recorder: RunRecorder, started_s: float) -> DedupResult:
        if self._host is None:
            self.runner.plan(self.procedure.plan(self))
        expectation = DedupExpectation(self)
        expectation.begin()
        self._pin_index()
        summary = self.procedure.decide(self)
        scratch_bytes = self.scratch_bytes
        self._check_loss(summary)
        removed = self.procedure.remove(self) if self.passes.writer is not None else None
        if removed is not None:
            summary.update(self.procedure.check_counts(self, summary, removed))
        summary["skipped_files"] = [entry.report() for entry in self._first_pass().skipped_files]
        summary.update(self._quarantine_facts(removed))
        expectation.end(time.monotonic() - started_s, summary, removed)
        self._append_to_index()
        shown = cast("Summary", {k: v for k, v in summary.items() if not k.endswith("_by_file")})
        self._finish(shown, removed)
        whole = self._finish_record(recorder, removed) if self._host is None else None
        return DedupResult(
            "finished",
            self.output.path,
            self.duplicates,
            shown,
            time.monotonic() - started_s,
            self.peak_bytes,
            scratch_bytes,
            removed,
            self.passes.counted,
            expectation.prediction,
            record=whole,
        )

    def _finish_record(self, recorder: RunRecorder, removed: RunResult | None) -> RunRecord:
        """Record that the run has ended, and write its report, which shows what is recorded."""
        counts = None
        if removed is not None:
            labels = removed.duplicate_labels
            counts = RunCounts.of_ledger(removed.ledger, labels)
        record = recorder.finish(counts, duplicate_stages=removed.duplicate_labels if removed is not None else ())
        if removed is not None:
            removed.report = leave_report(self.output.run_dir)
        self.output.keep_end()
        return record

    def run_shard(self) -> DedupResult:
        """Compute the keys of one part of the input.

        They are written to a folder of the output where `merge` reads them. Nothing is decided yet.
        """
        started_s = time.monotonic()
        pipeline = key_pipeline(self, "keys-0", self._shard_stage(), self.shards_path)
        result = self.runner.execute(pipeline, "keys-0", shard=self.settings.shard, fresh=self.settings.fresh)
        counts: Summary = {"n_documents": result.ledger.written.n, "n_duplicates": 0}
        seconds = time.monotonic() - started_s
        return DedupResult("shard", result.output, "", counts, seconds, result.peak_bytes, counted=self.passes.counted)

    def _shard_stage(self) -> ProcessingStage[Any, Any]:
        stage = self.procedure.shard_stage(self.passes)
        if stage is None:
            option = "merge" if self.settings.merge else "shard"
            raise UsageError(f"{self.passes.name} is done as a whole and not by shards; leave {option} out")
        return stage

    @contextlib.contextmanager
    def _processes(self) -> Iterator[None]:
        if self._host is not None:  # those of the whole curation, which also ends them
            yield
            return
        keys = self.passes.keys or self.passes.keys_of(1)
        modules, stages = ["tamis.dedup.solver", "tamis.dedup.stages"], [stage for stage, _ in keys]
        is_needed = self.output.read_record() is None
        with self.runner.session.processes(self.work.path, modules, stages, start=is_needed):
            yield

    # -- for procedures -----------------------------------------------------------------------------------------------
    @property
    def peak_bytes(self) -> int:
        """The most memory in use so far, all processes together."""
        return self._mark.peak_bytes

    @property
    def shards_path(self) -> str:
        """The folder with what shards made."""
        output = self.passes.step.output if self.passes.step is not None else self.output.path
        return f"{output}/shard-keys-0" if is_bucket(output) else os.path.join(output, "shard-keys-0")

    def execute_checked(self, pipeline: Pipeline, label: str, **more: Any) -> RunResult:
        """Run a pass over the input, which must be that of the first pass, before the pass and after it."""
        return self.runner.execute_checked(pipeline, label, self.input, self.work.path, **more)

    def files(self) -> FileList:
        """List the input files as they are now."""
        return self.input.files(self.work.path, self.work.scratch)

    def measure_scratch(self) -> None:
        """Note the size of the files between passes, as they are now."""
        self.scratch_bytes = max(self.scratch_bytes, self.work.size_bytes())

    def clear_duplicates(self) -> None:
        """Remove the tables for people of an earlier attempt."""
        shutil.rmtree(self.duplicates, ignore_errors=True)

    def is_clean(self) -> bool:
        """Return True if the first pass quarantined nothing."""
        return self._first_pass().is_clean

    def known_records(self) -> str | None:
        """Return the folder that lists the positions of the input's records, or None if it was not written.

        See formats/jsonl/record_index.py.
        """
        folder = os.path.join(self.work.path, "known")
        return folder if os.path.exists(os.path.join(folder, "kept-runs.npy")) else None

    def _first_pass(self) -> FirstPass:
        return self.work.state.first_pass.read() or FirstPass()

    # -- contents of the output (output_directory.py) -----------------------------------------------------------------
    def check_output(self, run: RunDir) -> None:
        if self.output.read_record() is None:  # one that ended here may have ids of duplicates next to it
            ids = self.passes.ids
            run.check_foreign(None, () if ids is None else (os.path.basename(ids.folder),))
        if self.settings.fresh:
            self.files()  # refuses an input that is in the output, before that is removed

    def forget(self) -> None:
        if self.passes.ids is not None:
            self.passes.ids.forget()
        self.remove_work()

    def open_work(self) -> str:
        path = self.work.open()
        if self.work.scratch is not None:
            self.settings.of_passes["scratch"] = self.work.scratch
        return path

    def remove_work(self) -> None:
        self.work.remove()

    def has_commits(self) -> bool:
        return self.output.read_record() is not None or self.output.run.has_commits() or self.work.has_commits()

    # -- identity -----------------------------------------------------------------------------------------------------
    def _identity(self) -> dict[str, Any]:
        return {"name": self.passes.name, **self.passes.identity}

    def _check_identity(self, earlier: dict[str, Any] | None) -> None:
        """Raise RunConflict if the output has results of a deduplication with other parameters."""
        if earlier is None:
            return
        now = json.loads(json.dumps(self._identity()))
        changed = sorted(k for k in {*earlier, *now} if earlier.get(k) != now.get(k))
        if not changed:
            return
        if not self.has_commits():  # a call that was killed before it did anything claims nothing
            self.remove_work()
            self.open_work()
            return
        raise RunConflict(
            f"{self.output.path} already contains another deduplication: {changed[0]} was {earlier.get(changed[0])!r} "
            f"and is {now.get(changed[0])!r} now; give another output, or start over with fresh (--fresh)"
        )

    # -- the index ----------------------------------------------------------------------------------------------------
    def _pin_index(self) -> None:
        """Record at the start which entries are compared with, so that a changing index does not change any numbers."""
        from tamis.dedup.index import index

        p, work = self.passes, self.work.state
        if p.index is not None and p.index != p.against:
            index.refuse_existing(p.index, p.output)
        if p.against is None:
            return
        pins = work.index_pins.read()
        if pins is None:
            work.index_pins.write(IndexPins(index.pinned(p.against, p.index_kind, p.index_parameters, p.output)))
        elif not work.summary.exists():
            index.check_pins(p.against, pins.pins)

    def _check_index(self, compared: Sequence[IndexPin]) -> None:
        """Raise RunConflict if the index that a finished run was compared with has other entries now.

        Not of a run that added itself: entries after its own were compared with it.
        """
        from tamis.dedup.index import index

        p = self.passes
        if p.against is None or p.index == p.against:
            return
        now = index.pinned(p.against, p.index_kind, p.index_parameters, p.output)
        if list(compared) != now:
            raise RunConflict(
                f"{self.output.path} already has the result of another comparison: the index {p.against} has other "
                f"entries now ({len(now)}, and had {len(compared)}). Give another output, or start over with fresh "
                "(--fresh)"
            )

    def _append_to_index(self) -> None:
        p = self.passes
        if p.index is None:
            return
        folder = self.work.pass_output("keys-0" if p.kept is None else self._collect_kept(p.kept))
        records = sorted(os.path.join(folder, f.name) for f in RunDir(folder).files().written())
        step = AppendToIndex(p.index, p.index_kind, p.index_parameters, p.identity.get("input"), p.output)
        self.solver.solve([step], records, "index")

    def _collect_kept(self, stages: Callable[[str, str], list[ProcessingStage[Any, Any]]]) -> str:
        """Run the pass over the input that writes records of what stays; return its label."""
        from tamis.dedup.stages import RecordWriter

        label, table, paths = "kept", self.work.table("removal"), self.work.state.removal_paths_file
        pass_stages = [self.input.reader(), *stages(table, paths), RecordWriter(self.work.pass_output(label))]
        self.execute_checked(Pipeline(f"{self.passes.name}: {label}", stages=pass_stages), label)
        self.measure_scratch()
        return label

    # -- safety checks ------------------------------------------------------------------------------------------------
    def _check_loss(self, summary: Summary) -> None:
        """Stop before anything is removed when a whole source is about to be lost."""
        if self._host is not None:
            self._host.check_loss(summary)
        elif self.passes.writer is not None:
            limit = LossLimit(self.passes.max_source_loss, self.passes.counted)
            limit.check(self.work.state.paths(), summary, self.duplicates)

    def _quarantine_facts(self, removed: RunResult | None) -> Summary:
        """Count documents in quarantine, and stretches of input without any, by the pass that removes.

        Where none does, by the first one, whose quarantine is copied out of the work folder then, before that is
        removed.
        """
        if removed is not None:
            return {"n_quarantined": removed.ledger.quarantined.n, "n_bad_ranges": removed.ledger.n_bad_ranges}
        first = RunDir(self.work.pass_output("keys-0"))
        manifest, entries = first.read_manifest(), first.quarantine
        ledger = (manifest.ledger if manifest is not None else None) or Ledger()
        counts: Summary = {"n_quarantined": ledger.quarantined.n, "n_bad_ranges": ledger.n_bad_ranges}
        if any(counts.values()) and self.passes.step is None and os.path.isdir(entries):
            target = os.path.join(self.output.run_dir, "quarantine")
            files.own_folder(target, "start over with fresh (--fresh)", 0o755)
            for name in sorted(os.listdir(entries)):
                with (
                    open(os.path.join(entries, name), "rb") as entry,
                    files.replacing(os.path.join(target, name), files.OWN) as copy,
                ):
                    shutil.copyfileobj(entry, copy)
        return counts

    # -- the end ------------------------------------------------------------------------------------------------------
    def _finish(self, summary: Summary, removed: RunResult | None) -> None:
        """Record that everything is done, and remove the files between passes."""
        inputs, plan = self.input.guard.reference(), None if removed is None else self.output.run.read_plan()
        if inputs is not None and plan is not None and not inputs.changes(plan.inputs):
            inputs = None  # the plan has them
        compared = self.work.state.index_pins.read() or IndexPins()
        record = DedupRecord(self._identity(), dict(summary), inputs, compared=compared)
        self._write_record(record, "duplicates", *(() if removed is not None else ("quarantine",)))
        self._write_ids(record)
        self._remove_finished_work()

    def _remove_finished_work(self) -> None:
        if self.passes.step is None:  # the tables of a step are for later passes
            self.remove_work()

    def _read_record(self) -> DedupRecord | None:
        data = self.output.read_record()
        return None if data is None else state.from_dict(DedupRecord, data, self.output.record_path)

    def _write_record(self, record: DedupRecord, *keep: str) -> None:
        self.output.write_record(state.to_dict(record), *keep)

    def _write_ids(self, record: DedupRecord) -> None:
        """Write the ids of removed documents if they are requested and missing."""
        table = self.passes.ids
        if table is None or not table.is_asked:
            return
        if record.ids == table.recorded() and table.is_whole(record.summary["n_duplicates"]):
            return
        try:
            self._make_ids(table, record)
        except (PipelineError, RunConflict) as exc:
            if table.is_required:
                raise
            warnings.warn(
                f"{self.passes.name}: id_field={table.id_field!r}: no ids were written to {table.folder} ({exc}). The "
                f"duplicates are listed in {self.duplicates}",
                stacklevel=2,
            )

    def _make_ids(self, table: IdFiles, record: DedupRecord) -> None:
        """Write ids of documents, which are known by position: the files must be those that were compared."""
        assert record.inputs is not None
        changes = record.inputs.changes(identify_inputs(self.files()))
        if changes:
            raise RunConflict(f"the input changed after it was compared: {changes[0]}; start over with fresh (--fresh)")
        self._write_record(record._replace(ids=None))  # until these are whole
        table.write(self.duplicates, self.input.reader(), record.inputs.paths, self.runner.execute)
        self._write_record(record._replace(ids=table.recorded()))
