"""`tamis dedup exact IN OUT`: of documents with equal texts, one stays."""

from __future__ import annotations

from typing import Annotated, Literal

from tamis.cli.dedup.shared import DuplicateOptions, Keep, Target, plan_or_run
from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Option


def exact(
    source: options.Source,
    target: Target,
    keep: Keep = "first",
    backend: Annotated[
        Literal["cpu", "gpu", "auto"],
        Option(help="Where to hash the texts; the result is the same. auto: measure both, and use the faster one."),
    ] = "cpu",
    *,
    duplicates: DuplicateOptions,
    work: options.ShardOptions,
) -> None:
    """Remove documents whose texts are equal.

    The output has the format of the input. OUT.tamis/duplicates lists each duplicate with the document that was kept.
    If it is interrupted, run the same command again: it continues where it stopped.

    Example: tamis dedup exact data/ unique/ --memory 1GB
    """
    from tamis.dedup.exact.workflow import RemoveExactDuplicates

    workflow = RemoveExactDuplicates(
        target,
        source,
        input_blocksize=work.get("blocksize"),
        keep=keep,
        backend=backend,
        **duplicates.workflow_arguments,
    )
    plan_or_run(workflow, duplicates.plan, work)
