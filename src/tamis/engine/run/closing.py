"""The end of a run: its books are checked, its result judged against the quarantine limit, the manifest written.

`judge` is pure; `RunCloser` reads the commit log and writes the manifest.
"""

from __future__ import annotations

import os
import time
from enum import Enum
from typing import NamedTuple

from tamis.engine.histograms import tables
from tamis.engine.ledger import Ledger
from tamis.engine.run.observation import Observation, Totals
from tamis.engine.run.output.directory import Past
from tamis.engine.run.planning import ExecutionContext, OutputPlanner
from tamis.engine.run.run_result import RunResult
from tamis.engine.run_record import load_run_record
from tamis.engine.schema import Manifest, ResultStatus, RunPlan
from tamis.errors import ConservationError, Incomplete
from tamis.forecast.prediction import Prediction
from tamis.hints import command
from tamis.sizes import format_size


class Completeness(Enum):
    """True if a run is complete that did all it could."""

    COMPLETE = "complete"
    NOTHING_READ = "nothing of the input could be read: there is not one document"
    TOO_MANY_QUARANTINED = "quarantined records are above the limit"
    FILES_LOST = "some input files could not be read or changed during the run"
    BYTES_LOST = "part of the input could not be read"


class Judgment(NamedTuple):
    """A verdict with the figures that led to it, as a sentence."""

    verdict: Completeness
    reason: str = ""

    @property
    def exit_code(self) -> int:
        return 0 if self.verdict is Completeness.COMPLETE else Incomplete.exit_code

    def message(self, see: str) -> str:
        """Return the message for the user; `see`: the command that shows the quarantined records."""
        return f"{self.reason}; everything else is committed. See: {see}" if self.exit_code else ""


def judge(ledger: Ledger, input_bytes: int, limit: float, floor: int) -> Judgment:
    """Judge the books of a whole run, so that a resumed one is judged like an uninterrupted one.

    `input_bytes`: of all files as they are stored; `limit`: the share of records, and of bytes, that may be lost;
    `floor`: the number of records that may be, whatever their share.
    """
    n_bad = ledger.quarantined.n + ledger.n_bad_ranges
    n_records = ledger.n_read
    if n_bad and ledger.quarantined.n == n_records:
        return Judgment(Completeness.NOTHING_READ, Completeness.NOTHING_READ.value)
    rate = n_bad / max(1, n_records)
    if n_bad > floor and rate > limit:
        figures = f"{n_bad} of {n_records} records are in quarantine ({rate:.2%}), above the limit of {limit:.2%}"
        return Judgment(Completeness.TOO_MANY_QUARANTINED, figures)
    lost = f"{format_size(ledger.lost_bytes)} of it"
    if ledger.n_lost_files:
        return Judgment(Completeness.FILES_LOST, f"{Completeness.FILES_LOST.value} ({lost})")
    # Files that a stage opens itself may be inputs of the run, too, or known to that stage alone (downloads).
    share = ledger.lost_bytes / max(1, input_bytes, ledger.stage_bytes)
    if ledger.lost_bytes and share > limit:
        figures = f"{lost} as stored, {min(share, 1.0):.2%} of its bytes, above the limit of {limit:.2%}"
        return Judgment(Completeness.BYTES_LOST, f"{Completeness.BYTES_LOST.value}: {figures}")
    return Judgment(Completeness.COMPLETE)


class RunCloser:
    """Ends one run."""

    def __init__(self, context: ExecutionContext, planner: OutputPlanner) -> None:
        self._context, self._planner = context, planner

    def already(self, manifest: Manifest, past: Past) -> RunResult:
        """Return the result of a run that has ended before, judged by the limit of this call."""
        result = self._result(ResultStatus.ALREADY, past, manifest.steps[-1])
        result.exit_code, result.message = manifest.exit_code, manifest.message
        result.record = load_run_record(self._context.dir.path)
        if manifest.status == ResultStatus.FINISHED and result.exit_code in (0, Incomplete.exit_code):
            self._judge(result)
        return result

    def finish(
        self,
        plan: RunPlan,
        steps: list[float],
        totals: Totals,
        observation: Observation,
        budget_bytes: int,
        prediction: Prediction,
    ) -> RunResult:
        """Check the books, judge the run and write its manifest."""
        context = self._context
        past = context.dir.recover(self._planner.plain_size)
        done_steps = [s for s in steps if s <= totals.share]
        status = ResultStatus.FINISHED if totals.share == steps[-1] else ResultStatus.SAMPLED
        result = self._result(status, past, totals.share)
        result.counters, result.budget_bytes = dict(totals.counters), budget_bytes
        result.peak_bytes, result.caller_bytes = context.mark.peak_bytes, context.mark.caller_bytes
        result.read_bytes, result.prediction = totals.read_bytes, prediction
        result.first_failure, result.leaks = totals.first_failure, observation.leaks
        self._judge(result)
        if result.exit_code and result.first_failure:
            result.message += f". First: {result.first_failure}"
        if status is ResultStatus.SAMPLED:
            sampled = (
                f"{totals.share:.0%} of the documents were delivered, chosen by their content; {totals.why_sampled} "
                "and run the same command again"
            )
            result.exit_code = Incomplete.exit_code
            result.message = f"{sampled}. {result.message}" if result.message else sampled
        if problems := self._problems(past, totals.ledger, len(done_steps)):
            result.exit_code = ConservationError.exit_code
            result.message = "records in and records out do not add up: " + "; ".join(problems)
        context.dir.write_steps(done_steps)
        manifest = self._manifest(plan, done_steps, result)
        context.dir.write_manifest(manifest)
        observation.finish(manifest, result)
        return result

    def _judge(self, result: RunResult) -> None:
        context = self._context
        settings = context.settings
        judgment = judge(
            result.ledger, context.inputs.files.total_bytes, settings.quarantine_share, settings.quarantine_floor
        )
        result.exit_code = judgment.exit_code
        result.message = judgment.message(command("quarantine", context.dir.target))

    def _problems(self, past: Past, done: Ledger, n_steps: int) -> list[str]:
        """Return everything that does not add up: books, the commit log, input that no commit covers."""
        files = self._context.inputs.files
        problems = done.problems()
        if past.ledger.written != done.written:
            problems.append(f"the commit log holds {past.ledger.written.n} documents, {done.written.n} were written")
        for step in range(n_steps):
            gap = self._planner.covered(past, step).first_gap(len(files), lambda i: files.sizes[i] == 0)
            if gap is not None:
                problems.append(f"{files.paths[gap[0]]} was not processed from {gap[1]} on")
        return problems

    def _result(self, status: ResultStatus, past: Past, share: float) -> RunResult:
        context = self._context
        return RunResult(
            status,
            context.dir.path,
            context.dir.target,
            past.ledger,
            share,
            seconds=time.monotonic() - context.started_s,
            has_writer=context.job.writer is not None,
            n_files=past.n_files,
            skipped_files=context.inputs.files.skipped.entries(),
            duplicate_labels=context.job.duplicate_labels,
            io_names=context.job.io_names,
            input_paths=[os.fsdecode(path) for path in context.inputs.files.paths],
        )

    def _manifest(self, plan: RunPlan, steps: list[float], result: RunResult) -> Manifest:
        return Manifest(
            run_id=plan.run_id,
            steps=steps,
            status=result.status,
            share=result.share,
            exit_code=result.exit_code,
            message=result.message,
            ledger=result.ledger,
            content_hash=f"{result.ledger.content.identity:032x}",
            seconds=round(result.seconds, 3),
            budget_bytes=result.budget_bytes,
            peak_bytes=result.peak_bytes,
            caller_bytes=result.caller_bytes,
            counters=result.counters,
            read_bytes=result.read_bytes,
            n_files=result.n_files,
            histograms=tables(result.ledger, plan.rules),
            prediction=result.prediction,
            skipped_files=result.skipped_files,
        )
