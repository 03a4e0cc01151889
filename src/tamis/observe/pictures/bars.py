"""Horizontal bars with a name and a value each: the peak of every stage, for example."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tamis.observe.pictures.svg import number, text

MAX_BARS = 40
_ROW = 34


def bars_picture(
    label: str, rows: Sequence[tuple[str, float]], show: Callable[[float], str], whole: float = 0.0
) -> str:
    """`whole`: what a bar of full length stands for; else the largest."""
    rows = rows[:MAX_BARS]
    most = number(whole) or max((number(v) for _, v in rows), default=0.0)
    if most <= 0:
        return ""
    parts = []
    for i, (name, value) in enumerate(rows):
        y = i * _ROW
        width = min(number(value) / most * 100, 100.0)
        parts.append(
            f'<g><title>{text(name, 200)}: {text(show(number(value)))}</title><rect class="rail" x="0" y="{y + 18}" width="100%" height="9" rx="2"/>'
            f'<rect class="fill k1" x="0" y="{y + 18}" width="{width:.2f}%" height="9" rx="2"/><text x="0" y="{y + 13}">{text(name, 34)}</text>'
            f'<text class="strong" x="100%" y="{y + 13}" text-anchor="end">{text(show(number(value)))}</text></g>'
        )
    svg = f'<svg class="rows" role="img" aria-label="{text(label)}" width="100%" height="{len(rows) * _ROW}">'
    return f"<figure>{svg}{''.join(parts)}</svg></figure>"
