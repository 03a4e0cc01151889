"""The nodes of a run on a cluster, as a table for the dashboard and the report."""

from __future__ import annotations

from collections.abc import Sequence

from tamis.observe.markup import bar, table
from tamis.observe.pictures.svg import text
from tamis.observe.points import NodePoint
from tamis.sizes import format_size

_MAX_ROWS = 200


def nodes_table(nodes: Sequence[NodePoint]) -> str:
    """Nothing for a run on one machine. Those that are there first; of very many the first 200."""
    shown = sorted(nodes, key=lambda n: (not n.is_up, n.name))[:_MAX_ROWS]
    rows = [
        [
            text(n.name, 80), "there" if n.is_up else "gone", f"{n.busy} of {n.n_workers}", f"{n.n_units:,}", format_size(n.used_bytes),
            bar(n.used_bytes / max(n.budget_bytes, 1)), format_size(n.peak_bytes), format_size(n.budget_bytes),
        ]
        for n in shown
    ]  # fmt: skip
    columns = ["node", "", "workers busy", "partitions", "memory", "of its budget", "peak", "budget"]
    return table(columns, rows, (2, 3, 4, 6, 7)) if rows else ""
