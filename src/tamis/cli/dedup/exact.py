"""`tamis dedup exact IN OUT`: of documents with equal texts, one stays."""

from __future__ import annotations

from typing import Annotated, Literal

from tamis.cli.dedup.shared import (
    Against,
    Append,
    FindOnly,
    IndexPath,
    Keep,
    KeepBy,
    MaxLoss,
    Normalize,
    PlanOnly,
    Target,
    TextField,
    plan_or_run,
)
from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Option


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
    work: options.ShardOptions,
) -> None:
    """Remove documents whose texts are equal.

    The output has the format of the input. OUT/_tamis/duplicates lists each duplicate with the document that was kept.
    If it is interrupted, run the same command again: it continues where it stopped.

    Example: tamis dedup exact data/ unique/ --memory 1GB
    """
    from tamis.dedup.exact.workflow import RemoveExactDuplicates

    workflow = RemoveExactDuplicates(
        target,
        source,
        input_blocksize=work.get("blocksize"),
        text_field=text_field,
        normalize_text=normalize,
        keep=keep,
        keep_by=keep_by,
        perform_removal=not find_only,
        max_source_loss=max_source_loss,
        index_path=index,
        against=against,
        append=append,
        backend=backend,
    )
    plan_or_run(workflow, plan, work)
