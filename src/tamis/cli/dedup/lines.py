"""`tamis dedup lines IN OUT`: cut lines or paragraphs that occurred before out of documents."""

from __future__ import annotations

from typing import Annotated

from tamis.cli.jobs.passes import perform_with
from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Argument, Exit, Option

Target = Annotated[str, Argument(metavar="OUT", help="The folder for the documents.")]


def lines(
    source: options.Source,
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
    *,
    work: options.ShardedOptions,
) -> None:
    """Cut lines (or paragraphs) that occurred before out of documents.

    The first one in the input stays. Documents of which nothing is left are dropped. The lines that occur most often are listed
    in OUT/_tamis/duplicates. The same command again goes on where it stopped.

    Example: tamis dedup lines data/ clean/ --memory 1GB
    """
    from tamis.dedup.lines.workflow import LineDeduplicationWorkflow

    workflow = LineDeduplicationWorkflow(
        target, source, input_blocksize=work.blocksize, text_field=text_field, unit=unit, normalize_text=normalize,
        min_chars=min_chars, min_count=min_count, keep_first=keep_first, min_left_chars=min_left_chars, cut_field=cut_field,
        perform_removal=not find_only, max_source_loss=max_source_loss,
    )  # fmt: skip
    raise Exit(perform_with(workflow.run, work))
