"""The table of what was dropped, at the end of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tamis.cli.terminal.show import clip, print_lines, print_table
from tamis.hints import command, quoted
from tamis.sizes import format_size

if TYPE_CHECKING:
    from tamis.engine.ledger import Ledger

_EXAMPLE_CHARS = 40


def print_drops(drops: Sequence[dict[str, Any]], output: str) -> None:
    """Print one row per rule, with names of documents to pass to `tamis why`.

    Print nothing if nothing was dropped.
    """
    if not drops:
        return
    stages = {d["stage"] for d in drops}
    rows = []
    for d in drops:
        # With one stage its name, often that of a whole chain, would only repeat what the table above says.
        rule = d["reason"] if len(stages) == 1 or d["reason"] == d["stage"] else f"{d['stage']}: {d['reason']}"
        examples = ", ".join(quoted(clip(name, _EXAMPLE_CHARS)) for name in d["examples"])
        size = format_size(d["bytes"]) if d["bytes"] else "-"  # documents that a stage made have no record
        rows.append((clip(rule, 60), f"{d['documents']:,}", size, examples))
    print_table("Dropped", ["rule", "documents", "bytes", "for example"], rows, right=(1, 2))
    example = next((name for d in drops for name in d["examples"]), None)
    if example is not None:
        print_lines([f"why one of them went: {command('why', output, example)}"])


def drops_of_run(ledger: Ledger, run_dir: str) -> list[dict[str, Any]]:
    """Documents, bytes and examples by stage and rule, as plain values."""
    from pathlib import Path

    from tamis.errors import UsageError
    from tamis.observe.drops import drops_of
    from tamis.observe.verdicts import input_paths

    def paths() -> list[str]:
        try:
            return input_paths(Path(run_dir))
        except UsageError:  # the run itself is fine: examples go without their files
            return []

    return [d.to_dict() for d in drops_of(ledger, paths)]
