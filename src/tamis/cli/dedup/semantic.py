"""`tamis dedup semantic IN OUT`: of documents whose embeddings nearly agree, one stays."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from tamis.cli.jobs.passes import perform_with
from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Argument, Exit, Option
from tamis.errors import UsageError

Target = Annotated[str, Argument(metavar="OUT", help="The folder for the documents that stay.")]


def semantic(
    source: options.Source,
    target: Target,
    embedding_field: Annotated[
        str, Option(help="The field that holds the embedding, a list of numbers.")
    ] = "embeddings",
    model: Annotated[
        str | None,
        Option(
            metavar="MODEL",
            help="Embed the texts with this model: minilm (comes with the extra models), a hub id or a folder. Default: the embeddings are there.",
        ),
    ] = None,
    pooling: Annotated[
        str | None,
        Option(
            help="How a MODEL that does not say so itself makes one vector of its tokens: mean_pooling, last_token, cls_token."
        ),
    ] = None,
    text_field: Annotated[
        str | None, Option(help="With --model: the field that holds the text. Default: text.")
    ] = None,
    eps: Annotated[float, Option(help="How unlike duplicates may be: 0.01 is a cosine of at least 0.99.")] = 0.01,
    clusters: Annotated[
        int | None,
        Option(
            help="Only documents of one cluster are compared. Default: one for about 1,000 documents, 1,000 at most."
        ),
    ] = None,
    keep: Annotated[
        str,
        Option(metavar="WHICH", help="Which one stays: hard (far from the centre of its cluster), easy or random."),
    ] = "hard",
    seed: Annotated[int, Option(help="For the choice of clusters and for --keep random.")] = 42,
    max_source_loss: Annotated[
        str, Option(metavar="SHARE", help="Stop before removal when a source would lose more than this share.")
    ] = "95%",
    backend: Annotated[
        Literal["cpu", "gpu", "auto"],
        Option(help="Where vectors are compared; auto: whichever is faster here, measured by a product of each."),
    ] = "auto",
    find_only: Annotated[bool, Option("--find-only", help="Write the table of duplicates, remove nothing.")] = False,
    *,
    work: options.ShardedOptions,
) -> None:
    """Find documents whose embeddings point nearly the same way, and remove all but one of each group.

    Documents are put into clusters (k-means), and those of one cluster are compared, on the CPU or a GPU and inside the memory budget, however
    many there are. Documents without an embedding stay. The same command again goes on where it stopped.

    Example: tamis dedup semantic data/ clean/ --model minilm --eps 0.02 --memory 4GB
    """
    workflow: Any
    if model is None:
        for name, value in (("--pooling", pooling), ("--text-field", text_field)):
            if value is not None:
                raise UsageError(
                    f"{name} goes with --model: without it no text is read, the embeddings are in the input"
                )
        from tamis.dedup.semantic.workflow import SemanticDeduplicationWorkflow

        workflow = SemanticDeduplicationWorkflow(
            source, target, clusters, embedding_field=embedding_field, input_filetype=None, random_state=seed, which_to_keep=keep,
            eps=eps, perform_removal=not find_only, input_blocksize=work.blocksize, max_source_loss=max_source_loss, backend=backend,
        )  # fmt: skip
    else:
        from tamis.dedup.semantic.text_workflow import TextSemanticDeduplicationWorkflow
        from tamis.stages.text.embedders.base import DEFAULT_MODEL

        workflow = TextSemanticDeduplicationWorkflow(
            source, target, model_identifier=DEFAULT_MODEL if model == "minilm" else model, text_field=text_field or "text", n_clusters=clusters,
            embedding_field=embedding_field, input_filetype=None, kmeans_random_state=seed, which_to_keep=keep, eps=eps,
            perform_removal=not find_only, input_blocksize=work.blocksize, max_source_loss=max_source_loss, embedding_pooling=pooling, backend=backend,
        )  # fmt: skip
    raise Exit(perform_with(workflow.run, work))
