"""Tables, cards and small bars in HTML, for the report and the dashboard. No inline styles: the dashboard's pages forbid them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from tamis.observe.charts.svg import number, text
from tamis.sizes import format_size


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Cells are HTML: whoever makes them escapes."""
    kind = [' class="n"' if i in right else "" for i in range(len(columns))]
    head = "".join(f'<th scope="col"{kind[i]}>{text(c)}</th>' for i, c in enumerate(columns))
    body = "".join(
        "<tr>" + "".join(f"<td{kind[i]}>{cell}</td>" for i, cell in enumerate(row)) + "</tr>" for row in rows
    )
    top = f"<thead><tr>{head}</tr></thead>" if any(columns) else ""
    return f'<div class="scroll" tabindex="0"><table>{top}<tbody>{body}</tbody></table></div>'


def cards(found: Iterable[tuple[str, str, str]]) -> str:
    """(name, value, detail) each, as they are: escaped here."""
    made = "".join(
        f'<div class="card"><span>{text(name)}</span><b>{text(value)}</b>{f"<small>{text(detail)}</small>" if detail else ""}</div>'
        for name, value, detail in found
    )
    return f'<div class="cards">{made}</div>' if made else ""


def bar(share: float, kind: str = "k1") -> str:
    width = min(number(share), 1.0) * 100
    return (
        f'<svg class="bar" width="100%" height="9" aria-hidden="true"><rect class="rail" width="100%" height="9" rx="2"/>'
        f'<rect class="fill {kind}" width="{width:.2f}%" height="9" rx="2"/></svg>'
    )


def value_text(value: object) -> str:
    """Format the value of a setting in one line."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 1_000_000:
        return f"{value:,} ({format_size(value)})" if abs(value) < 1 << 63 else "a number without end"
    return value[:400] if isinstance(value, str) else json.dumps(value, ensure_ascii=False)[:400]
