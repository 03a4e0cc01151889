"""`tamis dedup semantic IN OUT`: of documents whose embeddings nearly agree, one stays."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from tamis import _satellites
from tamis.cli.dedup.shared import FindOnly, MaxLoss, Target
from tamis.cli.jobs.passes import perform_with
from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import CommandExit, Option
from tamis.errors import UsageError


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
            help="Compute the embeddings with this model: minilm (comes with the extra models), a Hugging Face id or "
            "a folder. Default: they are in the input already.",
        ),
    ] = None,
    pooling: Annotated[
        str | None,
        Option(
            help="With --model: how the vectors of the tokens become one, for a model that does not say so itself: "
            "mean_pooling, last_token or cls_token."
        ),
    ] = None,
    text_field: Annotated[
        str | None, Option(help="With --model: the field that holds the text. Default: text.")
    ] = None,
    eps: Annotated[
        float,
        Option(
            help="How different two documents may be and still count as duplicates: 0.01 means a cosine similarity of "
            "at least 0.99."
        ),
    ] = 0.01,
    clusters: Annotated[
        int | None,
        Option(
            help="Number of clusters; only documents of the same cluster are compared. Default: one for about 1,000 "
            "documents, 1,000 at most."
        ),
    ] = None,
    keep: Annotated[
        str,
        Option(
            metavar="WHICH",
            help="Which document of a group stays: hard (the one farthest from the centre of its cluster), easy (the "
            "nearest) or random.",
        ),
    ] = "hard",
    seed: Annotated[int, Option(help="Seed for the clusters and for --keep random.")] = 42,
    max_source_loss: MaxLoss = "95%",
    backend: Annotated[
        Literal["cpu", "gpu", "auto"],
        Option(help="Where to compare the embeddings; auto: measure both, and use the faster one."),
    ] = "auto",
    find_only: FindOnly = False,
    *,
    work: options.ShardOptions,
) -> None:
    """Remove documents that mean nearly the same as one that stays: their embeddings point nearly the same way.

    Documents are put into clusters (k-means), and those of one cluster are compared, on the CPU or a GPU and inside the
    memory budget, however many there are. Documents without an embedding stay. If it is interrupted, run the same
    command again: it continues where it stopped.

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
            source,
            target,
            clusters,
            id_field=None,
            embedding_field=embedding_field,
            input_filetype=None,
            random_state=seed,
            which_to_keep=keep,
            eps=eps,
            perform_removal=not find_only,
            input_blocksize=work.get("blocksize"),
            max_source_loss=max_source_loss,
            backend=backend,
        )
    else:
        default_model = _satellites.load("dedup.default_embedding_model")
        workflow = _satellites.load("dedup.text_semantic")(
            source,
            target,
            model_identifier=default_model if model == "minilm" else model,
            text_field=text_field or "text",
            n_clusters=clusters,
            embedding_field=embedding_field,
            input_filetype=None,
            kmeans_random_state=seed,
            which_to_keep=keep,
            eps=eps,
            perform_removal=not find_only,
            input_blocksize=work.get("blocksize"),
            max_source_loss=max_source_loss,
            embedding_pooling=pooling,
            backend=backend,
            id_field=None,
        )
    raise CommandExit(perform_with(workflow.run, work))
