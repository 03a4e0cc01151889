"""`tamis dedup lines IN OUT`: cut lines or paragraphs that occurred before out of documents."""

from __future__ import annotations

from typing import Annotated, Any

from tamis.cli import options
from tamis.cli.arguments import Argument, Exit, Option

Source = Annotated[str, Argument(metavar="IN", help="A file, a folder or a glob of JSONL or Parquet files.")]
Target = Annotated[str, Argument(metavar="OUT", help="The folder for the documents.")]


def lines(
    source: Source,
    target: Target,
    text_field: Annotated[str, Option(help="The field that holds the text.")] = "text",
    unit: Annotated[
        str, Option(metavar="UNIT", help="What is compared: line, or paragraph (between blank lines).")
    ] = "line",
    normalize: Annotated[
        str,
        Option(metavar="MODE", help="What equal means: none, strip, nfc, casefold, alphanumeric or ccnet."),
    ] = "casefold",
    min_chars: Annotated[int, Option(help="Shorter ones are never cut.")] = 20,
    min_count: Annotated[int, Option(help="Only what occurs at least so often is cut.")] = 2,
    keep_first: Annotated[
        bool, Option("--keep-first/--cut-all", help="Leave the first occurrence, or cut that one, too.")
    ] = True,
    min_left_chars: Annotated[int, Option(help="Drop a document of which less than this is left.")] = 1,
    cut_field: Annotated[
        str | None, Option(metavar="FIELD", help="A field that tells the numbers of what was cut, from 0.")
    ] = None,
    max_source_loss: Annotated[
        str, Option(metavar="SHARE", help="Stop before cutting when a source would lose more than this share.")
    ] = "95%",
    find_only: Annotated[bool, Option("--find-only", help="Only count, and list the most frequent.")] = False,
    memory: options.Memory = None,
    workers: options.Workers = None,
    scratch: options.Scratch = None,
    blocksize: options.Blocksize = None,
    timeout: options.Timeout = None,
    quarantine_limit: options.QuarantineLimit = None,
    fresh: options.Fresh = False,
    dashboard: options.Dashboard = False,
    dashboard_port: options.DashboardPort = None,
    metrics_port: options.MetricsPort = None,
    metrics_host: options.MetricsHost = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Cut lines (or paragraphs) that occurred before out of documents.

    The first one in the input stays. Documents of which nothing is left are dropped. The lines that occur most often are listed
    in OUT/_tamis/duplicates. The same command again goes on where it stopped.

    Example: tamis dedup lines data/ clean/ --memory 1GB
    """
    from tamis.cli import dedup
    from tamis.dedup.lines.workflow import LineDeduplicationWorkflow

    workflow = LineDeduplicationWorkflow(
        target, source, input_blocksize=blocksize, text_field=text_field, unit=unit, normalize_text=normalize,
        min_chars=min_chars, min_count=min_count, keep_first=keep_first, min_left_chars=min_left_chars, cut_field=cut_field,
        perform_removal=not find_only, max_source_loss=max_source_loss,
    )  # fmt: skip
    settings = options.given(
        memory=memory, workers=workers, scratch=scratch, timeout=timeout, fresh=fresh, quarantine_limit=quarantine_limit,
        dashboard=dashboard, dashboard_port=dashboard_port, metrics_port=metrics_port, metrics_host=metrics_host,
    )  # fmt: skip
    raise Exit(dedup.perform(workflow.run, settings, as_json, quiet))


def described(result: Any) -> dict[str, Any]:
    """What a summary tells beside the counts of the decision."""
    about: dict[str, Any] = {"unit": result.counted.removesuffix("s")}
    if result.run is not None:
        book = next(b for b in result.run.ledger.stages if b.name == "cut_units")
        about["cut_bytes"] = int(book.metrics.get("bytes_cut", 0))
        about["n_dropped"] = sum(t.n for t in book.dropped.values())
    return about


def print_summary(about: dict[str, Any], result: Any) -> None:
    from tamis.cli.show import count, print_lines, print_table
    from tamis.sizes import format_size

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
    print_table(f"Repeated {unit}", ["", ""], rows, right=(1,))
    memory, scratch = format_size(about["peak_bytes"]), format_size(about["scratch_bytes"])
    told = [f"{about['seconds']:.1f} s, peak memory {memory}, scratch {scratch}"]
    if result.run is not None:
        written = f"{count(result.run.ledger.written.n, 'document')} in {count(result.run.n_files, 'file')}"
        told.append(f"output: {about['output']} ({written})")
    print_lines([*told, f"most frequent {unit}: {about['duplicates']}"])
