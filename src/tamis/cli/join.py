"""`tamis join IN OUT`: segments of documents become documents again, wherever the segments lie."""

from __future__ import annotations

from typing import Annotated

from tamis.cli import options
from tamis.cli.arguments import Argument, Exit, Option


def join(
    source: Annotated[str, Argument(metavar="IN", help="A file, a folder or a glob of JSONL or Parquet files.")],
    target: Annotated[str, Argument(metavar="OUT", help="The folder for the joined documents.")],
    id_field: Annotated[str, Option(help="The field that segments of one document have in common.")] = "id",
    segment_field: Annotated[str, Option(help="The field with the number of the segment.")] = "segment_id",
    text_field: Annotated[str, Option(help="The field that holds the text.")] = "text",
    separator: Annotated[str, Option(help="What goes between two segments; \\n is a line feed.")] = "\\n\\n",
    keep_segment_field: Annotated[bool, Option("--keep-segment-field", help="Keep the first one's number.")] = False,
    memory: options.Memory = None,
    workers: options.Workers = None,
    scratch: options.Scratch = None,
    timeout: options.Timeout = None,
    quarantine_limit: options.QuarantineLimit = None,
    fresh: Annotated[bool, Option("--fresh", help="Start over; removes only what Tamis wrote.")] = False,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Join segments that have the same id, in the order of their numbers. The same command again goes on where it stopped.

    Example: tamis join segments/ documents/ --memory 1GB
    """
    from tamis.cli import dedup
    from tamis.dedup.segments.workflow import DocumentJoinWorkflow

    workflow = DocumentJoinWorkflow(
        source, target, separator.replace("\\n", "\n").replace("\\t", "\t"), text_field, segment_field, id_field,
        not keep_segment_field,
    )  # fmt: skip
    settings = options.given(
        memory=memory, workers=workers, scratch=scratch, timeout=timeout, quarantine_limit=quarantine_limit, fresh=fresh
    )
    raise Exit(dedup.perform(workflow.run, settings, as_json, quiet))
