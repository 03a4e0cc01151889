"""`tamis decontaminate IN OUT --against EVALS`: remove what documents share with evaluation sets."""

from __future__ import annotations

from typing import Annotated

from tamis.cli.jobs.passes import perform_with
from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Argument, CommandExit, Option

Target = Annotated[str, Argument(metavar="OUT", help="The folder for the documents that stay.")]


def decontaminate(
    source: options.Source,
    target: Target,
    against: Annotated[
        list[str] | None,
        Option(
            metavar="PATH",
            help="An evaluation set (JSONL, JSON, Parquet, Arrow, or the folder of a dataset), or a folder of several. "
            "Repeat it for more.",
        ),
    ] = None,
    fields: Annotated[
        list[str] | None,
        Option(
            "--field",
            metavar="FIELD",
            help="A field of the evaluation sets that counts, a.b for one inside another. Repeat it for more. "
            "Default: question, problem, prompt, text, ... whichever there is first.",
        ),
    ] = None,
    text_field: Annotated[str, Option(help="The field that holds the text of documents.")] = "text",
    action: Annotated[
        str,
        Option(
            metavar="WHAT",
            help="drop contaminated documents, cut the shared words out of them, or report them and write none.",
        ),
    ] = "drop",
    words: Annotated[int, Option(help="Words of an n-gram; a shorter run of shared words does not count.")] = 13,
    short_words: Annotated[
        int, Option(help="Items shorter than an n-gram match as a whole if they have so many words; 0: never.")
    ] = 8,
    min_words: Annotated[
        int | None, Option(help="Words of the longest run that a document must share with an item. Default: --words.")
    ] = None,
    min_share: Annotated[
        str, Option(metavar="SHARE", help="Share of the n-grams of an item that a document must hold.")
    ] = "0",
    common: Annotated[
        str,
        Option(
            metavar="LIMIT",
            help="Ignore n-grams that more documents hold than this: a number, a share of all documents (at least "
            "100), or none to ignore none.",
        ),
    ] = "0.01%",
    min_left_chars: Annotated[
        int, Option(help="With --action cut: drop a document if fewer characters than this are left of it.")
    ] = 1,
    max_source_loss: Annotated[
        str,
        Option(
            metavar="SHARE",
            help="Stop before anything is removed if a source (an input folder or file) would lose more than this "
            "share of its documents.",
        ),
    ] = "95%",
    *,
    work: options.DocumentOptions,
) -> None:
    """Remove documents that contain text of evaluation sets, so that no model is tested on what it was trained on.

    Case, accents, punctuation and line breaks do not count. OUT.tamis/duplicates has the overlaps, the n-grams that
    were ignored as common text, the items too short to check, and a certificate (decontamination.json). If it is
    interrupted, run the same command again: it continues where it stopped.

    Example: tamis decontaminate data/ clean/ --against evals/ --memory 1GB
    """
    from tamis.dedup.contamination.workflow import DecontaminationWorkflow

    workflow = DecontaminationWorkflow(
        target,
        source,
        against=against or [],
        input_blocksize=work.get("blocksize"),
        text_field=text_field,
        fields=fields or (),
        words=words,
        short_words=short_words,
        min_words=min_words,
        min_share=0.0 if min_share in ("0", "0%") else min_share,
        common=common,
        action=action,
        min_left_chars=min_left_chars,
        max_source_loss=max_source_loss,
    )
    raise CommandExit(perform_with(workflow.run, work))
