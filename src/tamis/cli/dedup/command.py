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
Normalize = Annotated[
    str,
    Option(
        metavar="MODE",
        help="Which differences do not count: none (all count), strip (white space at the ends), nfc (Unicode composition), casefold (case, white space and Unicode forms) or alphanumeric (all but letters and digits, and case).",
    ),
]
Keep = Annotated[
    str,
    Option(
        metavar="WHICH", help="Which document of a group stays: the first, the longest, or the best (by --keep-by)."
    ),
]
KeepBy = Annotated[
    str | None,
    Option(metavar="FIELD", help="With --keep best: a field with a number; the document with the highest one stays."),
]
MaxLoss = Annotated[
    str,
    Option(
        metavar="SHARE",
        help="Stop before anything is removed if a source (an input folder or file) would lose more than this share of its documents.",
    ),
]
FindOnly = Annotated[bool, Option("--find-only", help="Only write the table of duplicates; remove nothing.")]
PlanOnly = Annotated[
    bool,
    Option(
        "--plan",
        help="Show what it would take (passes, memory, disk), and stop. Exit code 4 if the memory budget is too small.",
    ),
]
IndexPath = Annotated[
    str | None,
    Option(
        "--index",
        metavar="DIR",
        help="Keep an index of the documents that stay in this folder, for --against in later runs.",
    ),
]
Against = Annotated[
    str | None,
    Option(
        metavar="DIR",
        help="Compare with the index of an earlier run: documents that match something in it are removed.",
    ),
]
Append = Annotated[bool, Option("--append", help="Add the documents that stay to the index of --against.")]


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
        Option(help="Where to hash the texts; the result is the same. auto: measure both, and use the faster one."),
    ] = "cpu",
    plan: PlanOnly = False,
    *,
    work: options.ShardedOptions,
) -> None:
    """Remove documents whose texts are equal.

    The output has the format of the input. OUT/_tamis/duplicates lists each duplicate with the document that was kept.
    If it is interrupted, run the same command again: it continues where it stopped.

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
    char_ngrams: Annotated[
        int, Option(help="Texts are compared by overlapping runs of this many characters (shingles).")
    ] = 24,
    word_ngrams: Annotated[int | None, Option(help="Use runs of this many words instead of characters.")] = None,
    bands: Annotated[
        int, Option(help="Number of bands in the fingerprint of a document; more bands find less similar documents.")
    ] = 20,
    rows: Annotated[int, Option(help="Values per band; more values find only more similar documents.")] = 13,
    threshold: Annotated[
        str,
        Option(
            metavar="SHARE",
            help="Remove a document only if it is at least this similar (0 to 1) to one that is kept. midpoint: derived from --bands and --rows (0.77 by default). off: no check.",
        ),
    ] = "midpoint",
    min_shingles: Annotated[
        int, Option(help="Documents with fewer shingles are removed only if they are equal to another one.")
    ] = 10,
    bands_per_iteration: Annotated[
        int | None,
        Option(
            help="Process this many bands at a time. Fewer need less disk, not less memory, and read the input more often: 1 takes six to eight times as long as all 20."
        ),
    ] = None,
    seed: Annotated[
        int, Option(help="Seed of the hash functions; change it only to get a different, equally good fingerprint.")
    ] = 42,
    keep: Keep = "longest",
    keep_by: KeepBy = None,
    max_source_loss: MaxLoss = "95%",
    find_only: FindOnly = False,
    index: IndexPath = None,
    against: Against = None,
    append: Append = False,
    backend: Annotated[
        Literal["cpu", "gpu", "auto"],
        Option(
            help="Where to compute the fingerprints; the result is the same. auto: measure both, and use the faster one."
        ),
    ] = "cpu",
    plan: PlanOnly = False,
    *,
    work: options.ShardedOptions,
) -> None:
    """Remove documents that are nearly the same as one that stays.

    Documents whose fingerprints have a band in common are compared. One of them is removed only if its shingles and those of a document that
    stays have a Jaccard similarity of at least --threshold. OUT/_tamis/duplicates lists each duplicate with the document that was kept
    and the similarity. If it is interrupted, run the same command again: it continues where it stopped.

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
    ids: Annotated[
        str, Argument(metavar="IDS", help="Parquet or JSONL files with the ids of the documents to remove.")
    ],
    target: Target,
    id_field: Annotated[
        str | None,
        Option(
            metavar="FIELD",
            help="The field with the documents' own ids. Without it, ids mean file and position, as --find-only writes them.",
        ),
    ] = None,
    ids_field: Annotated[str, Option(metavar="FIELD", help="The field of IDS that holds the ids.")] = "id",
    drop_id_field: Annotated[bool, Option("--drop-id-field", help="Do not write the id field.")] = False,
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
