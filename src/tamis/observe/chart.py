"""Memory over time against the budget, as inline SVG."""

from __future__ import annotations

from collections.abc import Sequence

from tamis.sizes import format_size

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 900, 220, 70, 24


def memory_chart(points: Sequence[tuple[float, int]], budget_bytes: int) -> str:
    """Points are (seconds, bytes). Nothing for a run without samples."""
    if not points or budget_bytes <= 0:
        return ""
    top = max(budget_bytes * 1.1, max(used for _, used in points))
    end = max(points[-1][0], 1.0)

    def place(at: float, used: float) -> str:
        x = _LEFT + (_WIDTH - _LEFT) * at / end
        y = (_HEIGHT - _BOTTOM) * (1 - used / top)
        return f"{x:.1f},{y:.1f}"

    line = " ".join(place(at, used) for at, used in points)
    if len(points) == 1:  # one sample is a level, not a point
        line += " " + place(end, points[0][1])
    area = f"{place(points[0][0], 0)} {line} {place(points[-1][0] if len(points) > 1 else end, 0)}"
    (_, budget_y), zero = place(0, budget_bytes).split(","), _HEIGHT - _BOTTOM
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="memory over time">'
        f'<polygon points="{area}" fill="var(--ink)" opacity=".15"/><polyline points="{line}" fill="none" stroke="var(--ink)" stroke-width="1.5"/>'
        f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{budget_y}" y2="{budget_y}" stroke="var(--bad)" stroke-dasharray="5 4"/>'
        f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{zero}" y2="{zero}" stroke="var(--line)"/>'
        f'<text x="0" y="{float(budget_y) + 4:.1f}">{format_size(budget_bytes)}</text><text x="0" y="{zero + 4}">0</text>'
        f'<text x="{_LEFT}" y="{_HEIGHT - 6}">0 s</text><text x="{_WIDTH}" y="{_HEIGHT - 6}" text-anchor="end">{end:,.0f} s</text></svg>'
    )
