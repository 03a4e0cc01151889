"""`tamis dedup fuzzy IN OUT`: of documents that are nearly the same, one stays."""

from __future__ import annotations

from typing import Annotated, Literal

from tamis.cli.dedup.shared import DuplicateOptions, Keep, Target, plan_or_run
from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Option


def fuzzy(
    source: options.Source,
    target: Target,
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
            help="Remove a document only if it is at least this similar (0 to 1) to one that is kept. midpoint: "
            "derived from --bands and --rows (0.77 by default). off: no check.",
        ),
    ] = "midpoint",
    min_shingles: Annotated[
        int, Option(help="Documents with fewer shingles are removed only if they are equal to another one.")
    ] = 10,
    bands_per_iteration: Annotated[
        int | None,
        Option(
            help="Process this many bands at a time. Fewer need less disk, not less memory, and read the input more "
            "often: 1 takes six to eight times as long as all 20."
        ),
    ] = None,
    seed: Annotated[
        int, Option(help="Seed of the hash functions; change it only to get a different, equally good fingerprint.")
    ] = 42,
    keep: Keep = "longest",
    backend: Annotated[
        Literal["cpu", "gpu", "auto"],
        Option(
            help="Where to compute the fingerprints; the result is the same. auto: measure both, and use the faster "
            "one."
        ),
    ] = "cpu",
    *,
    duplicates: DuplicateOptions,
    work: options.ShardOptions,
) -> None:
    """Remove documents that are nearly the same as one that stays.

    Documents whose fingerprints have a band in common are compared. One of them is removed only if its shingles and
    those of a document that stays have a Jaccard similarity of at least --threshold. OUT.tamis/duplicates lists each
    duplicate with the document that was kept and the similarity. If it is interrupted, run the same command again: it
    continues where it stopped.

    Example: tamis dedup fuzzy data/ unique/ --memory 1GB
    """
    from tamis.dedup.fuzzy.workflow import RemoveFuzzyDuplicates

    workflow = RemoveFuzzyDuplicates(
        None,
        target,
        source,
        input_blocksize=work.get("blocksize"),
        char_ngrams=char_ngrams,
        word_ngrams=word_ngrams,
        num_bands=bands,
        minhashes_per_band=rows,
        threshold=None if threshold == "off" else threshold,
        min_shingles=min_shingles,
        bands_per_iteration=bands_per_iteration,
        seed=seed,
        keep=keep,
        backend=backend,
        **duplicates.workflow_arguments,
    )
    plan_or_run(workflow, duplicates.plan, work)
