"""The funnel of documents: a bar for the input, one for each rule that dropped some, and one for the output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tamis.observe.charts.svg import coordinate, number, share_text, text

MAX_ROWS = 24
_ROW = 34


class FunnelStep(NamedTuple):
    """One bar. `kind`: in, made, kept, dropped, duplicates, quarantined or aside (a class of style.CSS)."""

    name: str
    n: float
    kind: str = "dropped"
    detail: str = ""
    link: str = ""  # the anchor of what the page says about it


def funnel_chart(
    steps: Sequence[FunnelStep],
    show: Callable[[float], str] = lambda n: f"{n:,.0f}",
    unit: str = "documents",
) -> str:
    """Draw steps in the order of the pipeline.

    The first is the whole; dropped documents start where it had shrunk to. `show`, `unit`: of the numbers.
    """
    steps = _joined(steps)
    came = sum(number(s.n) for s in steps if s.kind in ("in", "made"))
    whole = max([came, *(number(s.n) for s in steps)])
    if whole <= 0:
        return ""
    rows = []
    left = number(steps[0].n)
    for i, step in enumerate(steps):
        n = number(step.n)
        y = i * _ROW
        x = 0.0
        if step.kind == "made":  # a piece more
            x = min(left / whole, 1.0) * 100
            left += n
        elif step.kind not in ("in", "kept"):  # a piece off the end of what is left
            left = max(left - n, 0.0)
            x = min(left / whole, 1.0) * 100
        width = min(n / whole * 100, 100.0 - x)
        share = share_text(n, whole) if n < whole else ""
        says = (
            f"{step.name}: {show(n)} {unit}{f', {share}' if share else ''}{f', {step.detail}' if step.detail else ''}"
        )
        opens, ends = (f'<a href="#{step.link}">', "</a>") if step.link else ("<g>", "</g>")
        rows.append(
            f"{opens}<title>{text(says, 400)}</title>"
            f'<rect class="rail" x="0" y="{y + 18}" width="100%" height="9" rx="2"/>'
            f'<rect class="f-{step.kind}" x="{coordinate(x)}%" y="{y + 18}" width="{width:.2f}%" height="9" rx="2"/>'
            f'<text x="0" y="{y + 13}">{text(step.name, 34)}</text>'
            f'<text class="strong" x="100%" y="{y + 13}" '
            f'text-anchor="end">{show(n)}{f" · {text(share)}" if share else ""}</text>{ends}'
        )
    label = f"{unit}: " + ", ".join(f"{s.name} {show(number(s.n))}" for s in steps)
    role = "group" if any(s.link for s in steps) else "img"  # an image has no links
    svg = f'<svg class="rows" role="{role}" aria-label="{text(label, 600)}" width="100%" height="{len(steps) * _ROW}">'
    return f"<figure>{svg}{''.join(rows)}</svg></figure>"


def _joined(steps: Sequence[FunnelStep]) -> list[FunnelStep]:
    """Merge the smallest steps that dropped something, at the position of the last of them, to MAX_ROWS steps."""
    if len(steps) <= MAX_ROWS:
        return list(steps)
    some = sorted((i for i, s in enumerate(steps) if s.kind == "dropped"), key=lambda i: number(steps[i].n))
    small = set(some[: len(steps) - MAX_ROWS + 1])
    if not small:
        return list(steps[:MAX_ROWS])
    rest = FunnelStep(f"{len(small)} more rules", sum(number(steps[i].n) for i in small))
    joined = []
    for i, step in enumerate(steps):
        if i not in small:
            joined.append(step)
        elif i == max(small):
            joined.append(rest)
    return joined[:MAX_ROWS]
