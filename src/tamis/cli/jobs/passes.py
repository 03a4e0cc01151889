"""Running a workflow of several passes from the command line: progress of each, Ctrl-C, alerts, and what happened at the end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tamis.cli.jobs.launch import Launch, alert_lines, make_watch
from tamis.cli.parsing.arguments import CommandExit, echo
from tamis.cli.parsing.options import JobOptions
from tamis.errors import TamisError
from tamis.stores.run_locations import local_output_dir

if TYPE_CHECKING:
    from tamis.backends.base import BaseExecutor
    from tamis.observe.alerts.watch import Watch


def perform_with(run: Callable[..., Any], work: JobOptions) -> int:
    """Run all passes as `perform` does, without the partition size.

    The partition size belongs to the workflow, not to its runs.
    """
    settings = {name: value for name, value in work.settings.items() if name != "blocksize"}
    return perform(run, settings, Launch.of_options(work.launch))


def perform(run: Callable[..., Any], settings: dict[str, Any], launch: Launch) -> int:
    """Run all passes with progress shown, print what happened, and return the exit code."""
    from tamis.backends.alerting import OFF
    from tamis.cli.jobs import passes_summary as summary
    from tamis.cli.terminal.show import print_json, tell_failure
    from tamis.dedup.alarms import alarms
    from tamis.forecast import ranges
    from tamis.signatures import accepted

    as_json = launch.options.as_json
    output = str(getattr(getattr(run, "__self__", None), "output_path", ""))
    run_dir = os.path.join(local_output_dir(output), "_tamis")
    raised: dict[str, Any] = {}
    try:
        with attended(run_dir, settings, "deduplication", launch) as (executor, show, watch):
            more = {} if executor is None else {"executor": executor}
            chosen = accepted(run, {**more, **settings})
            for who, one in _runs(run):
                for name in sorted({**more, **settings}.keys() - accepted(one, {**more, **settings}).keys()):
                    echo(f"{name} is not used: `run` of {who} has no such parameter", err=True)
            ours = accepted(run, {"progress": show, "watch": watch, "alerts": OFF, "count_caller": True})
            result = run(**ours, **chosen)
        raised = watch.summary() if watch is not None else {}
    except TamisError as exc:
        return tell_failure(exc, as_json)
    if not hasattr(result, "status"):
        _tell_other(result, getattr(run, "__self__", run), as_json)
        return 0
    if result.status == "shard":
        told = {"status": "shard", "exit_code": 0, "output": result.output, **result.summary}
        if as_json:
            print_json(told)
        else:
            n = f"{told['n_documents']:,} documents"
            echo(f"shard finished, {n}: {result.output}; when all are, `tamis merge` with the same command joins them")
        return 0
    about: dict[str, Any] = {
        "status": result.status, "output": result.output, "duplicates": result.duplicates, **result.summary,
        "seconds": round(result.seconds, 3), "peak_bytes": result.peak_bytes, "scratch_bytes": result.scratch_bytes,
    }  # fmt: skip
    if result.status != "already":
        ranges.learn_command(result.seconds, result.prediction)
    by_lines = result.counted != "documents"
    about |= {"alarms": alarms(result.summary, result.counted), "alerts": raised}
    about |= summary.described(result) if by_lines else {}
    if as_json:
        print_json(about)
    else:
        from tamis.cli.terminal.show import print_lines
        from tamis.formats.input_files.skipped import skipped_lines

        (summary.print_lines_summary if by_lines else summary.print_summary)(about, result)
        print_lines([*skipped_lines(about.get("passed_over") or ()), *alert_lines(raised)])
        for sentence in about["alarms"]:
            echo(f"warning: {sentence}", err=True)
    return 0


def _runs(run: Callable[..., Any]) -> list[tuple[str, Callable[..., Any]]]:
    """Return the `run` of a workflow, or of each of several that run in sequence, each with its name for messages."""
    several = getattr(getattr(run, "__self__", None), "workflows", ())
    return [(type(one).__name__, one.run) for one in several] or [("this workflow", run)]


def _tell_other(result: Any, workflow: Any, as_json: bool) -> None:
    """Print the final result of a user-defined workflow: its name and its figures, if it returned any."""
    from tamis.cli.terminal.show import print_json, print_lines

    last = getattr(workflow, "workflows", [workflow])[-1]  # of several, one after the other
    name = str(getattr(result, "workflow_name", "") or type(last).__name__)
    metadata = getattr(result, "metadata", None)
    figures = {str(k): v for k, v in metadata.items()} if isinstance(metadata, Mapping) else {}
    if as_json:
        plain = {k: v if isinstance(v, (str, int, float, bool, type(None))) else str(v) for k, v in figures.items()}
        print_json({"status": "finished", "exit_code": 0, "workflow": name, "metadata": plain})
    else:
        print_lines([f"{name}: finished", *(f"{key}: {value}" for key, value in figures.items())])


@contextlib.contextmanager
def attended(
    run_dir: str, settings: Mapping[str, Any], name: str, launch: Launch, passes: Mapping[str, str] | None = None
) -> Iterator[tuple[BaseExecutor | None, Callable[[dict[str, Any]], None], Watch | None]]:
    """Manage what surrounds the passes of a workflow: metrics, dashboard, alerts, progress, Ctrl-C.

    Yields the executor (None: the local one), the callback that receives progress, and the watch of every pass. `passes`: their names,
    where they are not those of a deduplication.
    """
    from tamis.cli.terminal.interrupts import sigterm_interrupts
    from tamis.pipeline.pass_progress import show_passes

    quiet = launch.options.quiet or launch.options.as_json
    watch = make_watch(launch.alerts, settings, run_dir, name, lambda text: echo(text, err=True))
    try:
        with (
            launch.surroundings(run_dir, settings) as executor,
            show_passes(quiet, passes) as show,
            sigterm_interrupts(),
        ):
            yield executor, show, watch
    except KeyboardInterrupt:
        echo("interrupted; finished passes are kept, the same command goes on from there", err=True)
        raise CommandExit(130) from None
    finally:
        if watch is not None:
            watch.close()
