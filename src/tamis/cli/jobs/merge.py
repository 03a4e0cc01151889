"""`tamis merge COMMAND ...`: join what `--shard` made on several machines, and finish. main.py turns it into the command with --merge."""

from __future__ import annotations

from typing import Annotated

from tamis.cli.parsing.arguments import Argument
from tamis.errors import UsageError


def merge(
    command: Annotated[
        list[str] | None,
        Argument(
            metavar="COMMAND",
            help="run, filter, classify, curate, images, video or dedup, with the same arguments and options, but without --shard.",
        ),
    ] = None,
) -> None:
    """Join the parts that the same command made with --shard 0/N to --shard N-1/N, and finish it.

    The files and counts of all parts are combined into one run; duplicates across parts are removed now. The output is the same as that of
    one run without --shard.

    Example: tamis merge dedup fuzzy data/ unique/ --memory 4GB
    """
    raise UsageError(
        "tamis merge: say what to join: the command that made the shards, e.g. tamis merge filter gopher data/ clean/"
    )
