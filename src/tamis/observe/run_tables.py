"""Tables of a run that the dashboard and the report have in common. Each gives "" where there is nothing to tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tamis.observe.charts.svg import clock_text, text
from tamis.observe.markup import bar, table, value_text
from tamis.observe.points import AlertPoint, EventPoint, NodePoint
from tamis.sizes import format_size

_MAX_ROWS = 200
_KINDS = {"critical": "bad", "warning": "bad", "resolved": "good"}


def nodes_table(nodes: Sequence[NodePoint]) -> str:
    """Return the table of nodes; nothing for a run on one machine.

    Present nodes come first; of very many, the first 200 are shown.
    """
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


def alerts_table(alerts: Iterable[AlertPoint]) -> str:
    rows = [
        [clock_text(a.at), f'<span class="{_KINDS.get(a.level, "")}">{text(a.level, 20)}</span>', text(a.rule, 60), text(a.text, 600)]
        for a in alerts
    ]  # fmt: skip
    return table(["time", "level", "rule", "what"], rows) if rows else ""


def events_table(events: Iterable[EventPoint]) -> str:
    rows = [[clock_text(e.at), text(e.kind, 60), text(e.text, 500)] for e in events]
    return table(["time", "event", "what"], rows) if rows else ""


def settings_table(settings: Sequence[dict[str, Any]], more: Callable[[dict[str, Any]], str] = lambda _: "") -> str:
    """`more`: what is told of a setting behind its reason, as HTML."""
    rows = [
        [
            text(s.get("name")), f"<code>{text(value_text(s.get('value')), 400)}</code>", text(s.get("chosen_by")),
            text(s.get("why"), 400) + more(s),
        ]
        for s in settings[:_MAX_ROWS]
    ]  # fmt: skip
    return table(["setting", "value", "chosen by", "why"], rows) if rows else ""
