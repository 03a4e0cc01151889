"""`tamis dedup substrings IN OUT`: cut passages that occur more than once out of documents."""

from __future__ import annotations

from typing import Annotated

from tamis.cli.dedup.shared import Append, Index, Plan, plan_or_run
from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Argument, Option

Target = Annotated[str, Argument(metavar="OUT", help="The folder for the documents.")]


def substrings(
    source: options.Source,
    target: Target,
    text_field: Annotated[str, Option(help="The field that holds the text.")] = "text",
    min_bytes: Annotated[int, Option(help="How long a passage must be, in bytes of UTF-8.")] = 500,
    keep: Annotated[
        str, Option(metavar="WHICH", help="Which copy of a passage stays: the first in the input, or none.")
    ] = "first",
    remove: Annotated[
        str,
        Option(
            metavar="WHAT",
            help="What is removed: span (the repeated passages), 'document-above SHARE' (whole documents of which "
            "more than this share is repeated, such as 'document-above 50%') or nothing (passages are only counted "
            "and listed).",
        ),
    ] = "span",
    normalize: Annotated[
        str,
        Option(
            metavar="MODE",
            help="Which differences do not count: none (all count), whitespace (how much, and of which kind) or case "
            "(also the case of ASCII letters).",
        ),
    ] = "none",
    edges: Annotated[
        str,
        Option(
            metavar="UNIT",
            help="Cut whole characters, words or lines: what a passage holds of one only in part stays.",
        ),
    ] = "characters",
    min_left_chars: Annotated[int, Option(help="Drop a document if fewer characters than this are left of it.")] = 1,
    cut_field: Annotated[
        str | None,
        Option(
            metavar="FIELD",
            help="Add this field to changed documents: where each removed passage began and ended, in bytes of the "
            "text as it was.",
        ),
    ] = None,
    max_source_loss: Annotated[
        str,
        Option(
            metavar="SHARE",
            help="Stop before anything is removed if a source (an input folder or file) would lose more than this "
            "share of its text.",
        ),
    ] = "95%",
    index: Index = None,
    against: Annotated[
        str | None,
        Option(
            metavar="DIR",
            help="Compare with the index of earlier runs, too: the same passages are removed as if the documents in it "
            "were the first of the input.",
        ),
    ] = None,
    append: Append = False,
    plan: Plan = False,
    *,
    work: options.ShardOptions,
) -> None:
    """Remove passages that occur more than once, in the same or in different documents.

    Finds exactly what a suffix array finds, in the memory that it is given. Of each passage the first copy in the input
    stays. Documents of which nothing is left are dropped. The passages that occur most often are listed in
    OUT.tamis/duplicates. If it is interrupted, run the same command again: it continues where it stopped.

    Example: tamis dedup substrings data/ clean/ --memory 1GB
    """
    from tamis.dedup.substrings.workflow import SubstringDeduplicationWorkflow

    workflow = SubstringDeduplicationWorkflow(
        target,
        source,
        input_blocksize=work.get("blocksize"),
        text_field=text_field,
        min_bytes=min_bytes,
        keep=keep,
        remove=remove,
        normalize_text=normalize,
        edges=edges,
        min_left_chars=min_left_chars,
        cut_field=cut_field,
        max_source_loss=max_source_loss,
        index_path=index,
        against=against,
        append=append,
    )
    plan_or_run(workflow, plan, work)
