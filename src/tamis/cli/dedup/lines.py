"""`tamis dedup lines IN OUT`: cut lines or paragraphs that occurred before out of documents."""

from __future__ import annotations

from typing import Annotated

from tamis.cli.jobs.passes import perform_with
from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Argument, CommandExit, Option

Target = Annotated[str, Argument(metavar="OUT", help="The folder for the documents.")]


def lines(
    source: options.Source,
    target: Target,
    text_field: Annotated[str, Option(help="The field that holds the text.")] = "text",
    unit: Annotated[
        str, Option(metavar="UNIT", help="What is compared: line, or paragraph (text between blank lines).")
    ] = "line",
    normalize: Annotated[
        str,
        Option(
            metavar="MODE",
            help="Which differences do not count: none (all count), strip (white space at the ends), nfc (Unicode "
            "composition), casefold (case, white space and Unicode forms), alphanumeric (all but letters and "
            "digits, and case) or ccnet (also accents, and which digit it is).",
        ),
    ] = "casefold",
    min_chars: Annotated[int, Option(help="Never remove lines with fewer characters.")] = 20,
    min_count: Annotated[int, Option(help="Remove only lines that occur at least so often.")] = 2,
    keep_first: Annotated[
        bool,
        Option(
            "--keep-first/--cut-all",
            help="Keep the first occurrence of a line, or remove that one, too. Default: keep it.",
        ),
    ] = True,
    min_left_chars: Annotated[int, Option(help="Drop a document if fewer characters than this are left of it.")] = 1,
    cut_field: Annotated[
        str | None,
        Option(
            metavar="FIELD",
            help="Add this field to changed documents: a list of the numbers (from 0) of the lines that were removed.",
        ),
    ] = None,
    max_source_loss: Annotated[
        str,
        Option(
            metavar="SHARE",
            help="Stop before anything is removed if a source (an input folder or file) would lose more than this "
            "share of its lines.",
        ),
    ] = "95%",
    find_only: Annotated[
        bool, Option("--find-only", help="Only count repeated lines and list the most frequent; remove nothing.")
    ] = False,
    *,
    work: options.ShardOptions,
) -> None:
    """Remove repeated lines (or paragraphs) from documents.

    The first occurrence in the input stays. Documents of which nothing is left are dropped. The lines that occur most
    often are listed in OUT.tamis/duplicates. If it is interrupted, run the same command again: it continues where it
    stopped.

    Example: tamis dedup lines data/ clean/ --memory 1GB
    """
    from tamis.dedup.lines.workflow import LineDeduplicationWorkflow

    workflow = LineDeduplicationWorkflow(
        target,
        source,
        input_blocksize=work.get("blocksize"),
        text_field=text_field,
        unit=unit,
        normalize_text=normalize,
        min_chars=min_chars,
        min_count=min_count,
        keep_first=keep_first,
        min_left_chars=min_left_chars,
        cut_field=cut_field,
        perform_removal=not find_only,
        max_source_loss=max_source_loss,
    )
    raise CommandExit(perform_with(workflow.run, work))
