"""Workflows of several passes on the command line: progress of each, Ctrl-C, alerts, and the summary at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from tamis.cli.jobs.launch import Launch, alert_lines, make_watch
from tamis.cli.parsing.arguments import CommandExit, echo
from tamis.cli.parsing.options import JobOptions
from tamis.cli.terminal.show import count, print_json, print_lines, print_table, report_failure
from tamis.engine.run.settings import DEFAULT_FILE_SIZE
from tamis.errors import TamisError
from tamis.hints import command
from tamis.sizes import format_size
from tamis.stores.run_locations import run_dir_of

if TYPE_CHECKING:
    from tamis.backends.base import BaseExecutor
    from tamis.cli.jobs.results import DedupSummary
    from tamis.dedup.passes import DedupResult
    from tamis.engine.progress import Progress
    from tamis.engine.schema import AlertCounts
    from tamis.observe.alerts.watch import Watch


def perform_with(run: Callable[..., Any], work: JobOptions) -> int:
    """Run all passes as `perform` does, without the partition size.

    The partition size belongs to the workflow, not to its runs.
    """
    settings: dict[str, Any] = {"file_size": DEFAULT_FILE_SIZE}
    settings |= {name: value for name, value in work.settings.items() if name != "blocksize"}
    return perform(run, settings, Launch.of_options(work.launch))


def perform(run: Callable[..., Any], settings: dict[str, Any], launch: Launch) -> int:
    """Run all passes with progress shown, print what happened, and return the exit code."""
    from tamis.backends.alerting import OFF
    from tamis.backends.slurm_array import ignoring_array
    from tamis.forecast import ranges
    from tamis.signatures import accepted

    as_json = launch.options.as_json
    output = str(getattr(getattr(run, "__self__", None), "output_path", ""))
    run_dir = run_dir_of(output)
    raised: AlertCounts = {}
    try:
        with attended(run_dir, settings, "deduplication", launch) as (executor, show, watch):
            arguments = settings if executor is None else {"executor": executor, **settings}
            _report_unused(run, arguments)
            ours = accepted(run, {"progress": show, "watch": watch, "alerts": OFF, "count_caller": True})
            with ignoring_array():
                result = run(**ours, **accepted(run, arguments))
        raised = watch.summary() if watch is not None else {}
    except TamisError as exc:
        return report_failure(exc, as_json)
    if not hasattr(result, "status"):
        _report_workflow(result, getattr(run, "__self__", run), as_json)
        return 0
    if result.status == "shard":
        _report_shard(result, as_json)
        return 0
    if result.status != "already":
        ranges.learn_command(result.seconds, result.prediction)
    about = _figures(result)
    about["alerts"] = raised
    if as_json:
        print_json(about)
    else:
        _print_result(about, result)
    return 0


def _report_unused(run: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Warn of arguments that the `run` of a user-defined workflow does not take."""
    from tamis.signatures import accepted

    for workflow, method in _runs(run):
        for name in sorted(arguments.keys() - accepted(method, arguments).keys()):
            if arguments[name] != DEFAULT_FILE_SIZE:  # that of commands, not of the user
                echo(f"{name} is not used: `run` of {workflow} has no such parameter", err=True)


def _report_shard(result: DedupResult, as_json: bool) -> None:
    report: dict[str, object] = {"status": "shard", "exit_code": 0, "output": result.output, **result.summary}
    if as_json:
        print_json(report)
    else:
        n = f"{result.n_documents:,} documents"
        echo(f"shard finished, {n}: {result.output}; when all are, `tamis merge` with the same command joins them")


def _figures(result: DedupResult) -> DedupSummary:
    """Return the figures of a deduplication or decontamination as plain values, with its alarms."""
    from tamis.dedup.alarms import alarms

    figures: dict[str, object] = {
        "status": result.status,
        "output": result.output,
        "duplicates": result.duplicates,
        **result.summary,
        **(result.record.cost() if result.record is not None else {}),
        "scratch_bytes": result.scratch_bytes,
        "alarms": alarms(result.summary, result.counted),
    }
    if result.counted != "documents":
        figures |= _cut_figures(result, "cut_passages" if result.counted == "bytes" else "cut_units")
    return cast("DedupSummary", figures)


def _print_result(about: DedupSummary, result: DedupResult) -> None:
    from tamis.formats.input_files.skipped import SkippedEntry, skipped_lines

    skipped = [SkippedEntry(**entry) for entry in about.get("skipped_files", ())]
    print_lines([*skipped_lines(skipped), *alert_lines(about["alerts"])])
    printers = {"documents": print_documents, "bytes": _print_repeated_passages}
    printers.get(result.counted, _print_repeated_lines)(about, result)
    for sentence in about["alarms"]:
        echo(f"warning: {sentence}", err=True)


def _runs(run: Callable[..., Any]) -> list[tuple[str, Callable[..., Any]]]:
    """Return the `run` of a workflow, or of each of several that run in sequence, each with its name for messages."""
    several = getattr(getattr(run, "__self__", None), "workflows", ())
    return [(type(one).__name__, one.run) for one in several] or [("this workflow", run)]


def _report_workflow(result: Any, workflow: Any, as_json: bool) -> None:
    """Print the final result of a user-defined workflow: its name and its figures, if it returned any."""
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
    run_dir: str, settings: Mapping[str, Any], name: str, launch: Launch
) -> Iterator[tuple[BaseExecutor | None, Progress, Watch | None]]:
    """Manage what surrounds the passes of a workflow: metrics, dashboard, alerts, progress, Ctrl-C.

    Yields the executor (None: the local one), the callback that receives progress, and the watch of every pass.
    """
    from tamis.cli.terminal.interrupts import sigterm_interrupts
    from tamis.pipeline.pass_progress import show_passes

    quiet = launch.options.quiet or launch.options.as_json
    watch = make_watch(launch.alerts, settings, run_dir, name, lambda text: echo(text, err=True))
    try:
        with (
            launch.surroundings(run_dir, settings) as executor,
            show_passes(quiet) as show,
            sigterm_interrupts(),
        ):
            yield executor, show, watch
    except KeyboardInterrupt:
        echo("interrupted; finished passes are kept; run the same command again to resume", err=True)
        raise CommandExit(130) from None
    finally:
        if watch is not None:
            watch.close()


# -- the summary ------------------------------------------------------------------------------------------------------
def print_documents(about: DedupSummary, result: DedupResult) -> None:
    from tamis.cli.jobs.summary import cost_line

    if "n_segments" in about:
        joined = f"{about['n_segments']:,} segments are {about['n_documents']:,} documents"
        print_lines([joined, cost_line(about), f"output: {about['output']}"])
        return
    if "sets" in about:
        _print_contamination(about, result)
        return
    n, n_duplicates = about["n_documents"], about["n_duplicates"]
    if about["status"] == "already":
        print_lines(
            [
                f"finished earlier, nothing to do: {n_duplicates:,} of {n:,} documents are duplicates "
                "(--fresh starts over)"
            ]
        )
        return
    rows = [("documents", f"{n:,}"), ("duplicates", f"{n_duplicates:,} ({n_duplicates / n:.1%})" if n else "0")]
    if "n_similar" in about:
        rows += [("  equal texts", f"{about['n_equal']:,}"), ("  similar texts", f"{about['n_similar']:,}")]
    if about.get("n_without_number"):
        rows.append(("without a number to be kept by", f"{about['n_without_number']:,}"))
    if "n_indexed" in about:
        rows.append(("  of documents in the index", f"{about['n_duplicates_of_indexed']:,}"))
        rows.insert(1, ("documents in the index", f"{about['n_indexed']:,}"))
    if "n_ids" in about:
        rows.append(("ids listed", f"{about['n_ids']:,}"))
    if "n_groups" in about:
        rows += [
            ("groups", f"{about['n_groups']:,}"),
            ("largest group", f"{about['largest_group']:,}"),
            ("without text", f"{about['n_without_text']:,}"),
        ]
    for name in ("hashed_on", "sketched_on"):
        if name in about:
            rows.append((name.replace("_", " "), about[name]))
    if "backend" in about:
        rows.append(("compared on", f"{about['backend']} ({about['backend_why']})"))
    if about.get("n_components"):
        rows.append(
            ("components before verification", f"{about['n_components']:,}, largest {about['largest_component']:,}")
        )
    if about.get("n_heavy_buckets"):
        rows.append(
            ("buckets above 100,000 documents", f"{about['n_heavy_buckets']:,}, largest {about['largest_bucket']:,}")
        )
    _print_rows("Duplicates", rows, about, result, "duplicates")


def _print_contamination(about: DedupSummary, result: DedupResult) -> None:
    n, n_found = about["n_documents"], about["n_duplicates"]
    if about["status"] == "already":
        sentence = f"{n_found:,} of {n:,} documents are contaminated"
        print_lines([f"finished earlier, nothing to do: {sentence} (--fresh starts over)"])
        return
    done = "found" if result.run is None else "cut" if about["action"] == "cut" else "dropped"
    rows = [("documents", f"{n:,}"), (f"contaminated, {done}", f"{n_found:,} ({n_found / n:.2%})" if n else "0")]
    rows += [
        (f"  by {one['name']}", f"{one['n_documents']:,}, {one['n_found']:,} of {one['n_items']:,} items")
        for one in about["sets"]
    ]
    n_unchecked = sum(one["n_unchecked"] for one in about["sets"])
    rows += [("items too short to check", f"{n_unchecked:,}")] if n_unchecked else []
    rows += [("n-grams ignored as common text", f"{about['n_excepted']:,}")] if about["n_excepted"] else []
    _print_rows("Decontamination", rows, about, result, "overlaps and certificate")


def _print_rows(title: str, rows: list[tuple[str, str]], about: DedupSummary, result: DedupResult, listed: str) -> None:
    """Print the table, the resources used, the location of the output, and where the results are `listed`."""
    from tamis.cli.jobs.summary import cost_line

    n_quarantined, n_ranges = about.get("n_quarantined", 0), about.get("n_bad_ranges", 0)
    rows += [("quarantined", f"{n_quarantined:,}")] if n_quarantined else []
    rows += [("stretches that could not be read", f"{n_ranges:,}")] if n_ranges else []
    print_table(title, ["", ""], rows, right=(1,))
    lines = [f"{cost_line(about)}, scratch {format_size(about['scratch_bytes'])}"]
    lines += [f"quarantine: {command('quarantine', about['output'])}"] if n_quarantined or n_ranges else []
    lines.append(f"{listed}: {about['duplicates']}")
    if result.run is not None:
        written = f"{count(result.run.ledger.written.n, 'document')} in {count(result.run.n_files, 'file')}"
        lines.append(f"output: {about['output']} ({written})")
        lines += [f"report: {result.run.report}"] if result.run.report else []
    print_lines(lines)


def _cut_figures(result: DedupResult, stage: str) -> dict[str, object]:
    """Return what a summary reports in addition to the counts of the decision. `stage`: the one that cuts."""
    about: dict[str, object] = {"unit": result.counted.removesuffix("s")}
    if result.run is not None:
        book = next(b for b in result.run.ledger.stages if b.name == stage)
        about["cut_bytes"] = int(book.metrics.get("bytes_cut", 0))
        about["n_dropped"] = sum(t.n for t in book.dropped.values())
    return about


def _print_repeated_lines(about: DedupSummary, result: DedupResult) -> None:
    unit, n, cut = f"{about['unit']}s", about["n_long_enough"], about["n_duplicates"]
    if about["status"] == "already":
        print_lines([f"finished earlier, nothing to do: {cut:,} of {n:,} {unit} repeat others (--fresh starts over)"])
        return
    rows = [
        (unit, f"{about['n_units']:,}"),
        ("  long enough to count", f"{n:,}"),
        ("  repeated, cut" if result.run is not None else "  repeated", f"{cut:,} ({cut / n:.1%})" if n else "0"),
        (f"different {unit} among them", f"{about['n_groups']:,}"),
        ("most frequent one", f"{about['largest_group']:,} times"),
        ("documents", f"{about['n_documents']:,}"),
        (f"  with repeated {unit}", f"{about['n_edited']:,}"),
    ]
    if result.run is not None:
        rows += [
            ("  dropped, too little left", f"{about['n_dropped']:,}"),
            ("text cut", format_size(about["cut_bytes"])),
        ]
    _print_rows(f"Repeated {unit}", rows, about, result, f"most frequent {unit}")


def _of_index(about: DedupSummary) -> list[tuple[str, str]]:
    """Return the rows of a summary about the passages whose first copy is in an index."""
    if "n_indexed" not in about:
        return []
    cut = format_size(about["n_duplicates_of_indexed"])
    passages = f"{about['n_passages_of_indexed']:,} ({cut})"
    return [("  first in the index", passages), ("documents in the index", f"{about['n_indexed']:,}")]


def _print_repeated_passages(about: DedupSummary, result: DedupResult) -> None:
    n_bytes, cut = about["n_text_bytes"], about["n_duplicates"]
    share = f" ({cut / n_bytes:.1%})" if n_bytes else ""
    if about["status"] == "already":
        repeated = f"{format_size(cut)}{share} of the text is repeated"
        print_lines([f"finished earlier, nothing to do: {repeated} (--fresh starts over)"])
        return
    rows = [
        ("text", format_size(n_bytes)),
        ("  repeated", f"{format_size(cut)}{share}"),
        ("passages", f"{about['n_passages']:,}"),
        *_of_index(about),
        ("most frequent one", f"{about['largest_group']:,} times"),
        ("documents", f"{about['n_documents']:,}"),
        ("  with repeated passages", f"{about['n_repeated_documents']:,}"),
    ]
    if result.run is not None:
        rows += [("  dropped", f"{about['n_dropped']:,}"), ("text cut", format_size(about["cut_bytes"]))]
    _print_rows("Repeated passages", rows, about, result, "passages")
