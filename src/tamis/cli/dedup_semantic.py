"""`tamis dedup semantic IN OUT`: of documents whose embeddings nearly agree, one stays."""

from __future__ import annotations

from typing import Annotated

from tamis.cli import options
from tamis.cli.arguments import Argument, Exit, Option

Source = Annotated[str, Argument(metavar="IN", help="A file, a folder or a glob of JSONL or Parquet files.")]
Target = Annotated[str, Argument(metavar="OUT", help="The folder for the documents that stay.")]


def semantic(
    source: Source,
    target: Target,
    embedding_field: Annotated[
        str, Option(help="The field that holds the embedding, a list of numbers.")
    ] = "embeddings",
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
    find_only: Annotated[bool, Option("--find-only", help="Write the table of duplicates, remove nothing.")] = False,
    memory: options.Memory = None,
    workers: options.Workers = None,
    scratch: options.Scratch = None,
    blocksize: options.Blocksize = None,
    timeout: options.Timeout = None,
    fresh: options.Fresh = False,
    dashboard: options.Dashboard = False,
    dashboard_port: options.DashboardPort = None,
    metrics_port: options.MetricsPort = None,
    metrics_host: options.MetricsHost = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Find documents whose embeddings point nearly the same way, and remove all but one of each group.

    Documents are put into clusters (k-means), and those of one cluster are compared, on the CPU and inside the memory budget, however many
    there are. Documents without an embedding stay. The same command again goes on where it stopped.

    Example: tamis dedup semantic embedded/ clean/ --eps 0.02 --memory 2GB
    """
    from tamis.cli import dedup
    from tamis.dedup.semantic.workflow import SemanticDeduplicationWorkflow

    workflow = SemanticDeduplicationWorkflow(
        source, target, clusters, embedding_field=embedding_field, input_filetype=None, random_state=seed, which_to_keep=keep,
        eps=eps, perform_removal=not find_only, input_blocksize=blocksize, max_source_loss=max_source_loss,
    )  # fmt: skip
    settings = options.given(
        memory=memory, workers=workers, scratch=scratch, timeout=timeout, fresh=fresh, dashboard=dashboard,
        dashboard_port=dashboard_port, metrics_port=metrics_port, metrics_host=metrics_host,
    )  # fmt: skip
    raise Exit(dedup.perform(workflow.run, settings, as_json, quiet))
