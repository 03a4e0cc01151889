"""Execute stages by an executor: settings, run, progress, report, and the verdict on the result.

Called by a pipeline (pipeline/pipeline.py), and by an executor that is given stages without one (base.py).
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tamis import _satellites
from tamis.backends.alerting import summary_of, watch_alerts
from tamis.backends.column_scan import find_column_types, wants_scan
from tamis.backends.progress import ProgressDisplay, at_most_every, in_one_line, print_lines
from tamis.engine.job import make_job
from tamis.engine.run.inputs import find_inputs
from tamis.engine.run.output.temporary import temporary_output
from tamis.engine.run.results import load_results
from tamis.engine.run.run import Run
from tamis.engine.run.run_result import RunResult
from tamis.engine.run.settings import RunSettings
from tamis.engine.run.shard import Shard
from tamis.errors import RunConflict, StoreError, TamisError, UsageError, error_of_run
from tamis.hints import command
from tamis.memory.release import without_collector
from tamis.stores.run_locations import run_dir_of
from tamis.stores.urls import is_bucket, output_url
from tamis.tasks import DocumentBatch, Task
from tamis.terminal import printable

if TYPE_CHECKING:
    from tamis.backends.base import BaseExecutor
    from tamis.stages.base import ProcessingStage
    from tamis.stages.io import Writer

_log = logging.getLogger("tamis.report")


def execute(
    executor: BaseExecutor,
    name: str,
    stages: list[ProcessingStage[Any, Any]],
    initial_tasks: Sequence[Task[Any]] | None,
    settings: Mapping[str, Any],
) -> RunResult:
    """Run expanded stages (stages/expand.py); return the result without judging it."""
    merged = {**_client_settings(), **settings}
    alerts = merged.pop("alerts", None)
    chosen = RunSettings.from_mapping(merged)
    documents = bool(initial_tasks) and all(isinstance(t, DocumentBatch) for t in initial_tasks or ())
    job = make_job(name, stages, chosen.mode, documents, executor.is_cluster)
    output = everything = _output(job.writer, chosen.run_dir)  # never input, whichever part of it this run writes
    if chosen.shard is not None:
        if job.writer is None and chosen.run_dir is None:
            raise UsageError(
                "shard: the parts must be stored where they can be joined; end with a writer, or give run_dir"
            )
        output = Shard.parse(chosen.shard).output_in(output)
    inputs = find_inputs(
        job,
        initial_tasks,
        chosen.blocksize,
        os.path.join(run_dir_of(output), "initial"),
        everything,
        chosen.scratch,
    )
    if wants_scan(job):
        find_column_types(job, inputs, chosen, executor, everything)
    run_dir = run_dir_of(output)
    with watch_alerts(alerts, executor.watch, merged, run_dir, name, executor.note) as watch:
        run = Run(
            job,
            inputs,
            chosen,
            executor.make_workers,
            output,
            executor.progress,
            watch,
            executor.is_part,
            executor.show or print_lines,
        )
        result = _run(run, executor, job.writer, chosen.run_dir)
    result.alerts = summary_of(watch)
    executor.last_result = result
    return result


def _run(run: Run, executor: BaseExecutor, writer: Writer | None, run_dir: str | None) -> RunResult:
    """Execute a run and leave its report, also where it fails."""
    reported = executor.report and (run_dir is not None if writer is None else writer.is_reported)
    try:
        result = run.execute()
    except RunConflict:  # the directory is another run's
        raise
    except (Exception, KeyboardInterrupt) as exc:  # also what a stage raised in this process
        if reported:
            leave_report(run.dir.path)
        if writer is None and run_dir is None and not executor.is_inline:
            exc.add_note("The run directory goes with this program; give run_dir=FOLDER to keep it and its log.")
        raise
    if reported and not (executor.is_part and not result.exit_code):  # the workflow leaves that of the whole
        report = os.path.join(run.dir.path, "report.html")
        is_reported = result.status == "already" and os.path.exists(report)
        result.report = report if is_reported else leave_report(run.dir.path)
        with contextlib.suppress(StoreError):  # the run is finished, whatever becomes of its page
            run.dir.keep_files("report.html")
    return result


def with_progress(executor: BaseExecutor, name: str, run: Callable[[], RunResult]) -> RunResult:
    """Call `run` with its progress shown, unless the executor has a callback already."""
    if executor.progress is not None or not executor.show_progress:
        return run()
    with ProgressDisplay(inline=executor.is_inline) as line:
        executor.progress, executor.note = at_most_every(executor.progress_interval, line.show), line.note
        executor.show = line.print
        try:
            result = run()
        finally:
            executor.progress = executor.note = executor.show = None
    line.note(in_one_line(name, result))
    return result


def tasks_or_raise(result: RunResult, name: str) -> list[Task[Any]]:
    """Return the tasks of a run; raise if it failed, warn if only some documents failed."""
    if result.first_failure and not result.exit_code:
        n = result.ledger.quarantined.n
        documents = f"{n:,} document{' is' if n == 1 else 's are'} in quarantine"
        warnings.warn(
            printable(f"{name}: {documents} ({command('quarantine', result.output)}); first: {result.first_failure}"),
            stacklevel=3,
        )
    if result.status == "sampled":  # what was asked for with on_infeasible="sample"
        warnings.warn(printable(f"{name}: {result.message}"), stacklevel=3)
        return load_results(result, name)
    if result.exit_code:
        raise error_of_run(result.exit_code, result.message)
    return load_results(result, name)


def _client_settings() -> dict[str, Any]:
    """Return the defaults of the open client (client.py); none was opened if that module is not loaded."""
    client = sys.modules.get("tamis.backends.client")
    return client.default_settings() if client is not None else {}


def _output(writer: Writer | None, run_dir: str | None) -> str:
    if writer is not None:
        if run_dir is not None:
            raise UsageError(
                f"run_dir is for pipelines without a writer; {writer.name} writes to {writer.path}, "
                "and the run is kept there"
            )
        return writer.path
    if run_dir is not None:
        return output_url(run_dir) if is_bucket(run_dir) else os.path.abspath(run_dir)
    return temporary_output()


def load_report() -> None:
    """Import what writes the report: 20 ms, of which an executor may have some to spare while others work."""
    _satellites.load("report.write")


def leave_report(run_dir: str) -> str:
    """Write report.html, and return its path. A report that cannot be written never fails a run."""
    try:
        with without_collector():
            return str(_satellites.load("report.write")(run_dir))
    except (TamisError, OSError) as exc:
        _log.warning("no report: %s", exc)
        return ""
