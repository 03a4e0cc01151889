"""`tamis dedup exact|fuzzy IN OUT`: find duplicates, verify them, and remove all but one of each, in one call."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from tamis.cli.dedup import index as dedup_index
from tamis.cli.dedup import lines as dedup_lines
from tamis.cli.dedup import semantic as dedup_semantic
from tamis.cli.jobs.passes import perform_with
from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Argument, Commands, Exit, Option

app = Commands("dedup", help="Find duplicate documents and remove all but one of each.")
app.command("lines")(dedup_lines.lines)
app.command("semantic")(dedup_semantic.semantic)

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


@app.command("exact")
def exact(
    source: options.Source,
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
    backend: Annotated[
        Literal["cpu", "gpu", "auto"],
        Option(help="Where texts are hashed, with the same result; auto: whichever is faster here, measured."),
    ] = "cpu",
    plan: PlanOnly = False,
    *,
    work: options.ShardedOptions,
) -> None:
    """Remove documents whose texts are equal.

    The output has the format of the input; one row per duplicate is in OUT/_tamis/duplicates. The same command again goes on
    where it stopped.

    Example: tamis dedup exact data/ unique/ --memory 1GB
    """
    from tamis.dedup.exact.workflow import RemoveExactDuplicates

    workflow = RemoveExactDuplicates(
        target, source, input_blocksize=work.blocksize, text_field=text_field, normalize_text=normalize, keep=keep,
        keep_by=keep_by, perform_removal=not find_only, max_source_loss=max_source_loss, index_path=index, against=against, append=append, backend=backend,
    )  # fmt: skip
    _plan_or_run(workflow, plan, work)


@app.command("fuzzy")
def fuzzy(
    source: options.Source,
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
    backend: Annotated[
        Literal["cpu", "gpu", "auto"],
        Option(help="Where sketches are made, with the same result; auto: whichever is faster here, measured."),
    ] = "cpu",
    plan: PlanOnly = False,
    *,
    work: options.ShardedOptions,
) -> None:
    """Remove documents that are nearly the same as one that stays.

    Candidates share a band of a sketch; one goes only if the Jaccard similarity of its shingles and those of a document that stays
    reaches the threshold. One row per duplicate, with the kept document and the similarity, is in OUT/_tamis/duplicates.

    Example: tamis dedup fuzzy data/ unique/ --memory 1GB
    """
    from tamis.dedup.fuzzy.workflow import RemoveFuzzyDuplicates

    workflow = RemoveFuzzyDuplicates(
        None, target, source, input_blocksize=work.blocksize, text_field=text_field, normalize_text=normalize, char_ngrams=char_ngrams,
        word_ngrams=word_ngrams, num_bands=bands, minhashes_per_band=rows, threshold=None if threshold == "off" else threshold,
        min_shingles=min_shingles, bands_per_iteration=bands_per_iteration, seed=seed, keep=keep, keep_by=keep_by,
        perform_removal=not find_only, max_source_loss=max_source_loss, index_path=index, against=against, append=append, backend=backend,
    )  # fmt: skip
    _plan_or_run(workflow, plan, work)


def _plan_or_run(workflow: Any, plan: bool, work: options.RunOptions) -> None:
    """Tell what a deduplication would take, or do it."""
    if plan:
        from tamis.cli.plan.dedup import show
        from tamis.cli.plan.machine import this_machine

        show(workflow, work.memory, work.workers, this_machine(), None, work.as_json, work.scratch)
        return
    raise Exit(perform_with(workflow.run, work))


@app.command("remove")
def remove(
    source: options.Source,
    ids: Annotated[str, Argument(metavar="IDS", help="Parquet or JSONL with the ids of documents to remove.")],
    target: Target,
    id_field: Annotated[
        str | None, Option(metavar="FIELD", help="The documents' own ids; without it ids mean file and position.")
    ] = None,
    ids_field: Annotated[str, Option(metavar="FIELD", help="The field of IDS that holds the ids.")] = "id",
    drop_id_field: Annotated[bool, Option("--drop-id-field", help="Leave the id out of what is written.")] = False,
    *,
    work: options.RunOptions,
) -> None:
    """Remove the documents that a table of ids lists, such as the one that --find-only writes.

    Example: tamis dedup remove data/ found/_tamis/duplicates unique/
    """
    from tamis.dedup.ids.workflow import TextDuplicatesRemovalWorkflow

    workflow = TextDuplicatesRemovalWorkflow(
        source, ids, target, None, id_field=id_field, duplicate_id_field=ids_field, drop_id_field=drop_id_field,
        input_blocksize=work.blocksize, output_filetype=None,
    )  # fmt: skip
    raise Exit(perform_with(workflow.remove, work))


app.command("index-list")(dedup_index.index_list)
app.command("index-remove")(dedup_index.index_remove)
