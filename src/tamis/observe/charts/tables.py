"""Tables, cards and small bars in HTML, for the report and the dashboard.

No inline styles: the dashboard's pages forbid them. Tables of a run are "" if there is nothing to show.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tamis.observe.charts.svg import number, text
from tamis.observe.points import AlertPoint, EventPoint, NodePoint
from tamis.sizes import format_size
from tamis.terminal import time_of_day


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Render a table of HTML cells, which the caller has escaped."""
    kind = [' class="n"' if i in right else "" for i in range(len(columns))]
    head = "".join(f'<th scope="col"{kind[i]}>{text(c)}</th>' for i, c in enumerate(columns))
    body = "".join(
        "<tr>" + "".join(f"<td{kind[i]}>{cell}</td>" for i, cell in enumerate(row)) + "</tr>" for row in rows
    )
    top = f"<thead><tr>{head}</tr></thead>" if any(columns) else ""
    return f'<div class="scroll" tabindex="0"><table>{top}<tbody>{body}</tbody></table></div>'


def folded_table(label: str, columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Render a table of HTML cells that can be unfolded: the figures behind a chart."""
    shown = table(columns, rows, right)
    return f'<details class="data"><summary>Table: {text(label)}</summary>{shown}</details>'


def cards(entries: Iterable[tuple[str, str, str]]) -> str:
    """Render cards of (name, value, detail), which are escaped here."""
    html = "".join(
        f'<div class="card"><span>{text(name)}</span><b>{text(value)}</b>'
        + (f"<small>{text(detail)}</small></div>" if detail else "</div>")
        for name, value, detail in entries
    )
    return f'<div class="cards">{html}</div>' if html else ""


def bar(share: float, kind: str = "k1") -> str:
    width = min(number(share), 1.0) * 100
    return (
        '<svg class="bar" width="100%" height="9" aria-hidden="true"><rect class="rail" width="100%" height="9" '
        'rx="2"/>'
        f'<rect class="fill {kind}" width="{width:.2f}%" height="9" rx="2"/></svg>'
    )


def value_text(value: object) -> str:
    """Format the value of a setting in one line."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 1_000_000:
        return f"{value:,} ({format_size(value)})" if abs(value) < 1 << 63 else "a number without end"
    return value[:400] if isinstance(value, str) else json.dumps(value, ensure_ascii=False)[:400]


_MAX_ROWS = 200
_KINDS = {"critical": "bad", "warning": "bad", "resolved": "good"}


def nodes_table(nodes: Sequence[NodePoint]) -> str:
    """Return the table of nodes; nothing for a run on one machine.

    Present nodes come first; of very many, the first 200 are shown.
    """
    shown = sorted(nodes, key=lambda n: (not n.is_up, n.name))[:_MAX_ROWS]
    rows = [
        [
            text(n.name, 80),
            "there" if n.is_up else "gone",
            f"{n.busy} of {n.n_workers}",
            f"{n.n_units:,}",
            format_size(n.used_bytes),
            bar(n.used_bytes / max(n.budget_bytes, 1)),
            format_size(n.peak_bytes),
            format_size(n.budget_bytes),
        ]
        for n in shown
    ]
    columns = ["node", "", "workers busy", "partitions", "memory", "of its budget", "peak", "budget"]
    return table(columns, rows, (2, 3, 4, 6, 7)) if rows else ""


def alerts_table(alerts: Iterable[AlertPoint]) -> str:
    rows = [
        [
            time_of_day(a.at),
            f'<span class="{_KINDS.get(a.level, "")}">{text(a.level, 20)}</span>',
            text(a.rule, 60),
            text(a.text, 600),
        ]
        for a in alerts
    ]
    return table(["time", "level", "rule", "what"], rows) if rows else ""


def events_table(events: Iterable[EventPoint]) -> str:
    rows = [[time_of_day(e.at), text(e.kind, 60), text(e.text, 500)] for e in events]
    return table(["time", "event", "what"], rows) if rows else ""


def settings_table(settings: Sequence[dict[str, Any]], more: Callable[[dict[str, Any]], str] = lambda _: "") -> str:
    """Render settings. `more`: HTML that follows the reason of a setting."""
    rows = [
        [
            text(s.get("name")),
            f"<code>{text(value_text(s.get('value')), 400)}</code>",
            text(s.get("chosen_by")),
            text(s.get("why"), 400) + more(s),
        ]
        for s in settings[:_MAX_ROWS]
    ]
    return table(["setting", "value", "chosen by", "why"], rows) if rows else ""
