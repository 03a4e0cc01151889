"""`tamis run`: curate what a recipe describes, inside a memory budget. `perform` is the part that other commands share.

This process is the supervisor and is counted in the budget: nothing imported here may import numpy, pyarrow, numba or
pandas, unless a module of the user's does.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tamis import files, secrets
from tamis.cli.jobs import command_file
from tamis.cli.jobs.jobs import Consent, RecipeJob
from tamis.cli.jobs.launch import AlertOptions, Launch, alert_lines, make_watch
from tamis.cli.jobs.request import Request, run_dir_of_pipeline
from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import CommandExit, echo
from tamis.cli.terminal.interrupts import sigterm_interrupts
from tamis.errors import RunConflict, StageError, TamisError

if TYPE_CHECKING:
    from tamis.backends.base import BaseExecutor
    from tamis.cli.jobs.results import RunSummary
    from tamis.engine.progress import ProgressState
    from tamis.pipeline import Pipeline


def run(
    recipe: options.RecipePath,
    set_: options.Sets = None,
    allow_module: options.AllowModules = None,
    allow_alert_sinks: options.AllowAlertSinks = False,
    trust_remote_code: options.TrustRemoteCode = False,
    *,
    work: options.RecipeOptions,
) -> None:
    """Run a recipe.

    Options given here override the settings of the recipe. Ctrl-C is safe: finished work is kept, and the same command
    again continues where it stopped.

    Example: tamis run recipe.yaml --memory 2GB --set input=data/
    """
    consent = Consent(tuple(allow_module or ()), trust_remote_code, allow_alert_sinks)
    job = RecipeJob(recipe, options.parse_sets(set_))
    raise CommandExit(perform(Request(job, work.settings, work.launch, consent)))


def perform(request: Request) -> int:
    """Run what was requested, print what happened, and return the exit code."""
    from tamis.cli.terminal.show import print_json, report_failure

    launch = request.launch
    workflow = request.workflow()
    if workflow is not None:
        if hasattr(workflow[0], "steps"):
            from tamis.cli.jobs import curate

            return curate.perform(request)
        from tamis.cli.jobs import passes

        return passes.perform(workflow[0].run, workflow[1], Launch.of_request(request))
    try:
        about = execute(request, launch.quiet or launch.as_json)
    except TamisError as exc:
        return report_failure(exc, launch.as_json)
    if launch.as_json:
        print_json(about)
    else:
        _print(about)
    return int(about["exit_code"])


def execute(request: Request, quiet: bool = False) -> RunSummary:
    """Run it with progress shown, write the report, and return what happened (summary.as_dict)."""
    pipeline, settings = request.build()
    launch = Launch.of_request(request)
    with launch.surroundings(run_dir_of_pipeline(pipeline, settings), settings) as executor:
        return execute_pipeline(
            pipeline, settings, lambda run_dir: command_file.save(request, run_dir), quiet, launch.alerts, executor
        )


def execute_pipeline(
    pipeline: Pipeline,
    settings: dict[str, Any],
    on_start: Callable[[str], None],
    quiet: bool,
    alerts: AlertOptions | None = None,
    executor: BaseExecutor | None = None,
) -> RunSummary:
    """Run a pipeline as `execute` does.

    `on_start` receives the run directory once this run owns it; without an `executor` the local one is used.
    """
    from tamis.backends.alerting import OFF
    from tamis.backends.local import LocalExecutor
    from tamis.backends.progress import ProgressDisplay
    from tamis.cli.jobs.summary import as_dict, drops_of_run
    from tamis.forecast import ranges

    run_dir = run_dir_of_pipeline(pipeline, settings)
    executor = executor or LocalExecutor()
    shown, began_s = ProgressDisplay(quiet, executor.is_inline), time.time()
    watch = make_watch(alerts or AlertOptions(), settings, run_dir, pipeline.name, shown.note)

    def observe(state: ProgressState) -> None:
        if state["phase"] == "starting":  # the lock is held, and --fresh has removed what it removes
            on_start(run_dir)
        shown.show(state)

    try:
        with shown, sigterm_interrupts():
            try:
                with executor.watched_by(observe, watch, show=shown.print):
                    result = pipeline.execute(executor, count_caller=True, alerts=OFF, **settings)  # it has a watch
            finally:
                if watch is not None:
                    watch.close()
    except KeyboardInterrupt:
        echo("interrupted; everything committed so far is kept; run the same command again to resume", err=True)
        raise CommandExit(130) from None
    except RunConflict:
        raise
    except Exception as exc:
        if not isinstance(exc, TamisError) and executor.is_inline:
            raise _stage_raised(exc) from None
        if not isinstance(exc, TamisError):
            raise
        alert_text = alert_lines(watch.summary()) if watch is not None else []
        raise with_stage_failure(exc, run_dir, began_s, alert_text) from None
    if result.status != "already":
        ranges.learn_command(result.seconds, result.prediction)
    about = as_dict(result)
    about["drops"] = drops_of_run(result.ledger, run_dir)
    if watch is not None:
        about["alerts"] = watch.summary()
    return about


def _stage_raised(exc: Exception) -> CommandExit:
    """Print what a stage raised in this process; return the exit. A debugger that was left is an interrupt."""
    import traceback

    from tamis.engine.worker.failures import is_debugger_exit

    if is_debugger_exit(exc):
        echo("interrupted in the debugger; run the same command again to resume", err=True)
        return CommandExit(130)
    echo(secrets.hide("".join(traceback.format_exception(exc))).rstrip(), err=True)
    return CommandExit(StageError.exit_code)


def with_stage_failure(exc: TamisError, run_dir: str, began_s: float, more: Sequence[str] = ()) -> TamisError:
    """Return the same error with the last failure of a stage named, followed by `more`.

    Python tracebacks go to the log.
    """
    from pathlib import Path

    from tamis.observe.series import SeriesError, open_series

    message, trace_mark, _ = secrets.hide(str(exc)).partition("Traceback (most recent call last)")
    message, trace = message.rstrip(), secrets.hide(str(exc)) if trace_mark else ""
    failure = None
    with contextlib.suppress(SeriesError), open_series(Path(run_dir)) as series:
        failure = next(iter(series.failures(began_s)), None)
    if failure is not None and (error := str(failure.data.get("error", ""))) not in message:
        stage = failure.data.get("stage")
        message += f"\nthe last failure: {f'stage {stage!r}: ' if stage else ''}{error}"
    path = os.path.join(run_dir, "worker.log")
    if trace:  # the stages could not even be loaded
        with contextlib.suppress(OSError), open(files.open_to_append(path), "ab") as log:
            log.write(trace.encode("utf-8", "backslashreplace") + b"\n")
    if (trace or failure is not None) and path not in message:
        message += f"\nthe log: {path}"
    message = "\n".join([message, *more])
    return type(exc)(message)


def _print(about: RunSummary) -> None:
    from tamis.cli.jobs.summary import print_summary
    from tamis.cli.terminal.show import print_lines

    if about["status"] == "already":
        what = "all" if about["share"] == 1.0 else f"the sample of {about['share']:.0%},"
        print_lines(
            [
                f"finished earlier, nothing to do: {about['output']} holds {what} {about['n_written']:,} documents "
                "(--fresh starts over)"
            ]
        )
    else:
        print_summary(about, alert_lines(about.get("alerts")))
    if about["message"]:
        echo(f"incomplete: {about['message']}" if about["exit_code"] == 3 else f"error: {about['message']}", err=True)
