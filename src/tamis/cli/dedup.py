"""`tamis dedup exact|fuzzy IN OUT`: find duplicates, verify them, and remove all but one of each, in one call."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from tamis import secrets
from tamis.cli import dedup_index, dedup_lines, dedup_semantic, options
from tamis.cli.arguments import Argument, Commands, Exit, Option, echo
from tamis.errors import TamisError

if TYPE_CHECKING:
    from tamis.cli.alerting import Wanted

app = Commands("dedup", help="Find duplicate documents and remove all but one of each.")
app.command("lines")(dedup_lines.lines)
app.command("semantic")(dedup_semantic.semantic)

Source = Annotated[str, Argument(metavar="IN", help="A file, a folder or a glob of JSONL or Parquet files.")]
Target = Annotated[str, Argument(metavar="OUT", help="The folder for the documents that stay.")]
TextField = Annotated[str, Option(help="The field that holds the text.")]
Normalize = Annotated[str, Option(metavar="MODE", help="What equal means: none, strip, nfc, casefold or alphanumeric.")]
Keep = Annotated[str, Option(metavar="WHICH", help="Which one stays: first, longest, or best (by --keep-by).")]
KeepBy = Annotated[str | None, Option(metavar="FIELD", help="With --keep best: the highest number here stays.")]
MaxLoss = Annotated[
    str, Option(metavar="SHARE", help="Stop before removal when a source would lose more than this share.")
]
FindOnly = Annotated[bool, Option("--find-only", help="Write the table of duplicates, remove nothing.")]
PlanOnly = Annotated[bool, Option("--plan", help="Tell what it would take (passes, memory, disk), and stop.")]
IndexPath = Annotated[str | None, Option("--index", metavar="DIR", help="Keep an index of what stays here.")]
Against = Annotated[
    str | None,
    Option(metavar="DIR", help="An index of an earlier run: what is in it stays, what equals it goes."),
]
Append = Annotated[bool, Option("--append", help="Add what stays to the index of --against.")]
Fresh = Annotated[bool, Option("--fresh", help="Start over; removes only what Tamis wrote.")]


@app.command("exact")
def exact(
    source: Source,
    target: Target,
    text_field: TextField = "text",
    normalize: Normalize = "none",
    keep: Keep = "first",
    keep_by: KeepBy = None,
    max_source_loss: MaxLoss = "95%",
    find_only: FindOnly = False,
    index: IndexPath = None,
    against: Against = None,
    append: Append = False,
    plan: PlanOnly = False,
    memory: options.Memory = None,
    workers: options.Workers = None,
    scratch: options.Scratch = None,
    blocksize: options.Blocksize = None,
    timeout: options.Timeout = None,
    quarantine_limit: options.QuarantineLimit = None,
    fresh: Fresh = False,
    dashboard: options.Dashboard = False,
    dashboard_port: options.DashboardPort = None,
    metrics_port: options.MetricsPort = None,
    metrics_host: options.MetricsHost = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Remove documents whose texts are equal.

    The output has the format of the input; one row per duplicate is in OUT/_tamis/duplicates. The same command again goes on
    where it stopped.

    Example: tamis dedup exact data/ unique/ --memory 1GB
    """
    from tamis.dedup.exact.workflow import ExactDeduplicationWorkflow

    workflow = ExactDeduplicationWorkflow(
        target, source, input_blocksize=blocksize, text_field=text_field, normalize_text=normalize, keep=keep,
        keep_by=keep_by, perform_removal=not find_only, max_source_loss=max_source_loss, index_path=index, against=against, append=append,
    )  # fmt: skip
    if plan:
        from tamis.cli.plan_dedup import show
        from tamis.cli.plan_machine import this_machine

        show(workflow, memory, workers, this_machine(), None, as_json, scratch)
        return
    settings = options.given(
        memory=memory, workers=workers, scratch=scratch, timeout=timeout, fresh=fresh, quarantine_limit=quarantine_limit,
        dashboard=dashboard, dashboard_port=dashboard_port, metrics_port=metrics_port, metrics_host=metrics_host,
    )  # fmt: skip
    raise Exit(perform(workflow.run, settings, as_json, quiet))


@app.command("fuzzy")
def fuzzy(
    source: Source,
    target: Target,
    text_field: TextField = "text",
    normalize: Normalize = "none",
    char_ngrams: Annotated[int, Option(help="Characters in a shingle.")] = 24,
    word_ngrams: Annotated[int | None, Option(help="Words in a shingle, instead of characters.")] = None,
    bands: Annotated[int, Option(help="Bands of the sketch.")] = 20,
    rows: Annotated[int, Option(help="Values in a band.")] = 13,
    threshold: Annotated[
        str,
        Option(
            metavar="SHARE",
            help="Least similarity to a document that stays; midpoint: of the bands' curve; off: no check.",
        ),
    ] = "midpoint",
    min_shingles: Annotated[int, Option(help="Shorter documents are compared by equality only.")] = 10,
    bands_per_iteration: Annotated[
        int | None, Option(help="Bands on the disk at once; fewer take more passes over the input.")
    ] = None,
    seed: Annotated[int, Option(help="Of the hashes.")] = 42,
    keep: Keep = "longest",
    keep_by: KeepBy = None,
    max_source_loss: MaxLoss = "95%",
    find_only: FindOnly = False,
    index: IndexPath = None,
    against: Against = None,
    append: Append = False,
    plan: PlanOnly = False,
    memory: options.Memory = None,
    workers: options.Workers = None,
    scratch: options.Scratch = None,
    blocksize: options.Blocksize = None,
    timeout: options.Timeout = None,
    quarantine_limit: options.QuarantineLimit = None,
    fresh: Fresh = False,
    dashboard: options.Dashboard = False,
    dashboard_port: options.DashboardPort = None,
    metrics_port: options.MetricsPort = None,
    metrics_host: options.MetricsHost = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Remove documents that are nearly the same as one that stays.

    Candidates share a band of a sketch; one goes only if the Jaccard similarity of its shingles and those of a document that stays
    reaches the threshold. One row per duplicate, with the kept document and the similarity, is in OUT/_tamis/duplicates.

    Example: tamis dedup fuzzy data/ unique/ --memory 1GB
    """
    from tamis.dedup.fuzzy.workflow import FuzzyDeduplicationWorkflow

    workflow = FuzzyDeduplicationWorkflow(
        target, source, input_blocksize=blocksize, text_field=text_field, normalize_text=normalize, char_ngrams=char_ngrams,
        word_ngrams=word_ngrams, num_bands=bands, minhashes_per_band=rows, threshold=None if threshold == "off" else threshold,
        min_shingles=min_shingles, bands_per_iteration=bands_per_iteration, seed=seed, keep=keep, keep_by=keep_by,
        perform_removal=not find_only, max_source_loss=max_source_loss, index_path=index, against=against, append=append,
    )  # fmt: skip
    if plan:
        from tamis.cli.plan_dedup import show
        from tamis.cli.plan_machine import this_machine

        show(workflow, memory, workers, this_machine(), None, as_json, scratch)
        return
    settings = options.given(
        memory=memory, workers=workers, scratch=scratch, timeout=timeout, fresh=fresh, quarantine_limit=quarantine_limit,
        dashboard=dashboard, dashboard_port=dashboard_port, metrics_port=metrics_port, metrics_host=metrics_host,
    )  # fmt: skip
    raise Exit(perform(workflow.run, settings, as_json, quiet))


@app.command("remove")
def remove(
    source: Source,
    ids: Annotated[str, Argument(metavar="IDS", help="Parquet or JSONL with the ids of documents to remove.")],
    target: Target,
    id_field: Annotated[
        str | None, Option(metavar="FIELD", help="The documents' own ids; without it ids mean file and position.")
    ] = None,
    ids_field: Annotated[str, Option(metavar="FIELD", help="The field of IDS that holds the ids.")] = "id",
    drop_id_field: Annotated[bool, Option("--drop-id-field", help="Leave the id out of what is written.")] = False,
    memory: options.Memory = None,
    workers: options.Workers = None,
    scratch: options.Scratch = None,
    blocksize: options.Blocksize = None,
    timeout: options.Timeout = None,
    quarantine_limit: options.QuarantineLimit = None,
    fresh: Fresh = False,
    dashboard: options.Dashboard = False,
    dashboard_port: options.DashboardPort = None,
    metrics_port: options.MetricsPort = None,
    metrics_host: options.MetricsHost = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Remove the documents that a table of ids lists, such as the one that --find-only writes.

    Example: tamis dedup remove data/ found/_tamis/duplicates unique/
    """
    from tamis.dedup.ids.workflow import TextDuplicatesRemovalWorkflow

    workflow = TextDuplicatesRemovalWorkflow(
        source, ids, target, id_field=id_field, duplicate_id_field=ids_field, drop_id_field=drop_id_field,
        input_blocksize=blocksize,
    )  # fmt: skip
    settings = options.given(
        memory=memory, workers=workers, scratch=scratch, timeout=timeout, fresh=fresh, quarantine_limit=quarantine_limit,
        dashboard=dashboard, dashboard_port=dashboard_port, metrics_port=metrics_port, metrics_host=metrics_host,
    )  # fmt: skip
    raise Exit(perform(workflow.run, settings, as_json, quiet))


app.command("index-list")(dedup_index.index_list)
app.command("index-remove")(dedup_index.index_remove)


def perform(
    run: Callable[..., Any],
    settings: dict[str, Any],
    as_json: bool,
    quiet: bool,
    alerts: Wanted | None = None,
) -> int:
    """Run all passes with progress shown, print what happened, and return the exit code."""
    from tamis.cli import dedup_lines
    from tamis.cli.show import print_json
    from tamis.dedup.alarms import alarms
    from tamis.forecast import ranges

    try:
        result, raised = _watched(run, settings, quiet or as_json, alerts)
    except KeyboardInterrupt:
        echo("interrupted; finished passes are kept, the same command goes on from there", err=True)
        raise Exit(130) from None
    except TamisError as exc:
        if not as_json:
            raise
        message = secrets.hide(str(exc))
        echo(f"error: {message}", err=True)
        print_json({"status": "failed", "exit_code": exc.exit_code, "message": message})
        return exc.exit_code
    about: dict[str, Any] = {
        "status": result.status, "output": result.output, "duplicates": result.duplicates, **result.summary,
        "seconds": round(result.seconds, 3), "peak_bytes": result.peak_bytes, "scratch_bytes": result.scratch_bytes,
    }  # fmt: skip
    if result.status != "already":
        ranges.learn_command(result.seconds, result.prediction)
    by_lines = result.counted != "documents"
    about |= {"alarms": alarms(result.summary, result.counted), "alerts": raised}
    about |= dedup_lines.described(result) if by_lines else {}
    if as_json:
        print_json(about)
    else:
        from tamis.cli.alerting import alert_lines
        from tamis.cli.show import print_lines
        from tamis.formats.passed import passed_lines

        (dedup_lines.print_summary if by_lines else _print)(about, result)
        print_lines([*passed_lines(about.get("passed_over") or ()), *alert_lines(raised)])
        for sentence in about["alarms"]:
            echo(f"look: {sentence}", err=True)
    return 0


def _watched(
    run: Callable[..., Any], settings: dict[str, Any], quiet: bool, alerts: Wanted | None
) -> tuple[Any, dict[str, Any]]:
    """The result, and what alerts there were. Every pass is watched."""
    from tamis.cli import dashboard, metrics
    from tamis.cli.ahead import import_ahead
    from tamis.cli.alerting import Wanted, make_watch
    from tamis.cli.run import sigterm_interrupts

    output = str(getattr(getattr(run, "__self__", None), "output_path", ""))
    watch = make_watch(
        alerts or Wanted(),
        settings,
        os.path.join(output, "_tamis"),
        "deduplication",
        lambda text: echo(text, err=True),
    )
    import_ahead("tamis.observe.report")
    try:
        with (
            metrics.beside_workflow(run, settings),
            dashboard.beside_workflow(run, settings),
            shown_passes(quiet) as show,
            sigterm_interrupts(),
        ):
            result = run(progress=show, watch=watch, count_caller=True, **settings)
    finally:
        if watch is not None:
            watch.close()
    return result, watch.summary() if watch is not None else {}


@contextlib.contextmanager
def shown_passes(quiet: bool, more: Mapping[str, str] | None = None) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Each pass with a progress display of its own, under its name. `more`: names of passes beside those of deduplications."""
    from tamis.cli.progress import Shown

    with contextlib.ExitStack() as stack:
        now: list[Any] = ["", None]

        def show(state: dict[str, Any]) -> None:
            label = str(state.get("pass", ""))
            if label != now[0]:
                stack.close()
                now[:] = [label, stack.enter_context(Shown(quiet))]
                if not quiet:
                    names = {**PASSES, **(more or {})}
                    echo(f"pass: {names.get(label.partition('-')[0], label)}", err=True)
            if "share" in state and "documents" not in state:
                state = {"phase": f"{state['phase']}: {state['share']:.0%}"}
            now[1].show(state)

        yield show


PASSES = {
    "keys": "reading documents, making keys",
    "decision": "deciding which ones go",
    "texts": "collecting the texts to be compared",
    "removal": "removing duplicates",
    "joining": "joining segments",
}


def _print(about: dict[str, Any], result: Any) -> None:
    from tamis.cli.show import count, print_lines, print_table
    from tamis.sizes import format_size

    if "n_segments" in about:
        joined = f"{about['n_segments']:,} segments are {about['n_documents']:,} documents"
        print_lines([f"{joined}, {about['seconds']:.1f} s", f"output: {about['output']}"])
        return
    n, gone = about["n_documents"], about["n_duplicates"]
    if about["status"] == "already":
        print_lines(
            [f"finished earlier, nothing to do: {gone:,} of {n:,} documents are duplicates (--fresh starts over)"]
        )
        return
    rows = [("documents", f"{n:,}"), ("duplicates", f"{gone:,} ({gone / n:.1%})" if n else "0")]
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
    if about.get("n_components"):
        rows.append(
            ("components before verification", f"{about['n_components']:,}, largest {about['largest_component']:,}")
        )
    if about.get("n_heavy_buckets"):
        rows.append(
            ("buckets above 100,000 documents", f"{about['n_heavy_buckets']:,}, largest {about['largest_bucket']:,}")
        )
    print_table("Duplicates", ["", ""], rows, right=(1,))
    memory, scratch = format_size(about["peak_bytes"]), format_size(about["scratch_bytes"])
    lines = [f"{about['seconds']:.1f} s, peak memory {memory}, scratch {scratch}"]
    if result.run is not None:
        lines.append(
            f"output: {about['output']} ({count(result.run.ledger.written.n, 'document')} in {count(result.run.n_files, 'file')})"
        )
    lines.append(f"duplicates: {about['duplicates']}")
    print_lines(lines)
