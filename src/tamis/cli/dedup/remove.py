"""`tamis dedup remove IN IDS OUT`: remove the documents that a table of ids lists."""

from __future__ import annotations

from typing import Annotated

from tamis.cli.dedup.shared import Target
from tamis.cli.jobs.passes import perform_with
from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Argument, CommandExit, Option


def remove(
    source: options.Source,
    ids: Annotated[
        str, Argument(metavar="IDS", help="Parquet or JSONL files with the ids of the documents to remove.")
    ],
    target: Target,
    id_field: Annotated[
        str | None,
        Option(
            metavar="FIELD",
            help="The field with the documents' own ids. Without it, ids mean file and position, as --find-only "
            "writes them.",
        ),
    ] = None,
    ids_field: Annotated[str, Option(metavar="FIELD", help="The field of IDS that holds the ids.")] = "id",
    drop_id_field: Annotated[bool, Option("--drop-id-field", help="Do not write the id field.")] = False,
    *,
    work: options.DocumentOptions,
) -> None:
    """Remove the documents that a table of ids lists, such as the one that --find-only writes.

    Example: tamis dedup remove data/ found.tamis/duplicates unique/
    """
    from tamis.dedup.ids.workflow import TextDuplicatesRemovalWorkflow

    workflow = TextDuplicatesRemovalWorkflow(
        source,
        ids,
        target,
        None,
        id_field=id_field,
        duplicate_id_field=ids_field,
        drop_id_field=drop_id_field,
        input_blocksize=work.get("blocksize"),
        output_filetype=None,
    )
    raise CommandExit(perform_with(workflow.remove, work))
