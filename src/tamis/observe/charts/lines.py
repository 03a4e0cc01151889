"""Several values over time as lines, and counts that grow as rates: what throughput, queues and GPUs are drawn with."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tamis.observe.charts.svg import MAX_HITS, Frame, Key, figure, moment_text, number, picked, seconds_text, text
from tamis.observe.charts.tables import folded_table

MAX_LINES = 7
_TABLE_ROWS = 12
_MAX_POINTS = 240
_SMOOTH_S = 6.0  # commits come in bursts: rates are taken over at least this long
_DASHES = ("", " d1", " d2")  # lines differ in more than colour


class Line(NamedTuple):
    """Values at times (seconds since the run began), in their order. `area`: the area below it is filled."""

    name: str
    points: Sequence[tuple[float, float]]
    area: bool = False
    kind: str = ""


def lines_chart(
    label: str,
    lines: Sequence[Line],
    show: Callable[[float], str],
    began_at: float = 0.0,
    top: float | None = None,
    note: str = "",
    height: int = 150,
    with_table: bool = False,
) -> str:
    """Draw a line chart; return "" if there are no points.

    `top`: the upper end if it is known (100 %, the size of a device). `with_table`: its values follow, folded.
    """
    drawn = [
        Line(line.name, _clean(line.points), line.area, line.kind or f"k{i % 7}")
        for i, line in enumerate(lines[:MAX_LINES])
        if line.points
    ]
    if not drawn:
        return ""
    start = min(line.points[0][0] for line in drawn)
    end = max(max(line.points[-1][0] for line in drawn), start + 1.0)
    most = max(v for line in drawn for _, v in line.points)
    frame = Frame(start, end, number(top) or most * 1.1 or 1.0, height)
    body, keys = "", []
    for i, line in enumerate(drawn):
        body += _draw_line(line, frame, _DASHES[i // 3 % 3], end)
        keys.append(Key(line.kind, line.name, show(line.points[-1][1])))
    body += frame.hits(_values(drawn, show, began_at))
    nothing = not most and not number(top)  # a scale of made-up values would only mislead
    chart = figure(frame.draw(label, body, (lambda _: "") if nothing else show), keys, note)
    return chart + _table(label, drawn, show) if with_table else chart


def _table(label: str, lines: Sequence[Line], show: Callable[[float], str]) -> str:
    """Return the values of the lines at some times."""
    times = sorted({at for line in lines for at, _ in line.points})
    rows = []
    for at in (times[i] for i in picked(len(times), _TABLE_ROWS)):
        values = [bisect.bisect_right(line.points, at, key=lambda p: p[0]) - 1 for line in lines]
        cells = [show(line.points[i][1]) if i >= 0 else "-" for line, i in zip(lines, values, strict=True)]
        rows.append([seconds_text(at), *map(text, cells)])
    return folded_table(label, ["time", *(line.name for line in lines)], rows, range(1, len(lines) + 1))


def _draw_line(line: Line, frame: Frame, dashes: str, end: float) -> str:
    """Return the path of a line, with its area; a single point is drawn as a level up to `end`."""
    points = list(line.points) if len(line.points) > 1 else [*line.points, (end, line.points[0][1])]
    body = ""
    if line.area:
        floor = [(at, 0.0) for at, _ in points]
        body = f'<path class="fill soft {line.kind}" d="{frame.band(floor, points)}"/>'
    return body + f'<path class="line {line.kind}{dashes}" d="{frame.line(points)}"/>'


def _clean(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(points[i][0], number(points[i][1])) for i in picked(len(points), _MAX_POINTS)]


def _values(lines: Sequence[Line], show: Callable[[float], str], began_at: float) -> list[tuple[float, str]]:
    """Return the text of each column: the newest value of every line up to that time."""
    times = sorted({at for line in lines for at, _ in line.points})
    rows = []
    for at in (times[i] for i in picked(len(times), MAX_HITS)):
        says = [moment_text(at, began_at)]
        for line in lines:
            i = bisect.bisect_right(line.points, at, key=lambda p: p[0]) - 1
            if i >= 0:
                says.append(f"{line.name[:60]}: {show(line.points[i][1])}")
        rows.append((at, "\n".join(says)))
    return rows


def rates(counts: Sequence[tuple[float, float]], over_s: float = _SMOOTH_S) -> list[tuple[float, float]]:
    """Convert counts that only grow to rates per second, each over at least `over_s`; a count that falls begins anew.

    >>> rates([(0, 0), (10, 50), (20, 250)])
    [(10, 5.0), (20, 20.0)]
    """
    points = []
    first = 0
    for i, (at, n) in enumerate(counts):
        if i and n < counts[i - 1][1]:
            first = i
        while first + 1 < i and at - counts[first + 1][0] >= over_s:
            first += 1
        before_at, before = counts[first]
        if at > before_at and (at - before_at >= over_s or i == len(counts) - 1):
            points.append((at, max(n - before, 0.0) / (at - before_at)))
    return points
