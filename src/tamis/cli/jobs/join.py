"""`tamis join IN OUT`: segments of documents become documents again, wherever the segments lie."""

from __future__ import annotations

from typing import Annotated

from tamis.cli.jobs.passes import perform_with
from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Argument, CommandExit, Option


def join(
    source: options.Source,
    target: Annotated[str, Argument(metavar="OUT", help="The folder for the joined documents.")],
    id_field: Annotated[str, Option(help="The field that segments of one document have in common.")] = "id",
    segment_field: Annotated[str, Option(help="The field with the number of the segment.")] = "segment_id",
    text_field: Annotated[str, Option(help="The field that holds the text.")] = "text",
    separator: Annotated[str, Option(help="Text between two segments; \\n is a line feed.")] = "\\n\\n",
    keep_segment_field: Annotated[
        bool,
        Option(
            "--keep-segment-field",
            help="Keep the segment number field; the joined document gets the number of its first segment.",
        ),
    ] = False,
    *,
    work: options.DocumentOptions,
) -> None:
    """Join segments into documents: those with the same id, in the order of their numbers.

    If it is interrupted, run the same command again: it continues where it stopped.

    Example: tamis join segments/ documents/ --memory 1GB
    """
    from tamis.dedup.join_segments.workflow import DocumentJoinWorkflow

    workflow = DocumentJoinWorkflow(
        source,
        target,
        separator.replace("\\n", "\n").replace("\\t", "\t"),
        text_field,
        segment_field,
        id_field,
        not keep_segment_field,
        input_blocksize=work.get("blocksize"),
    )
    raise CommandExit(perform_with(workflow.run, work))
