"""Histograms: bars over bins, several sets over each other (documents that came in, documents that were kept).

Shares are on an even axis, everything else on one by powers of two. The area of a bar, not its height, is the count:
bins differ in width, and a wide one is not a peak. Bins may have gaps between them (nothing fell there) and open ends.
Bins too narrow to be seen are drawn together.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tamis.observe.charts.svg import WIDTH, Key, coordinate, count_text, figure, number, text
from tamis.observe.charts.tables import folded_table

MAX_BINS = 700
_NARROW = 1 / 80  # of the width
_FINE_BEGIN, _FINE_END = 1 / 16, 16.0  # where recorded bins are finer than four per power of two
_REACH = 4.0  # a threshold up to this multiple of the largest value is on the axis
_HEIGHT = 120
_OF_ONE, _FINEST = (1.0, 1.25), 1 / 64  # the recorded bin of 1, and the width of those before it
_ENDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 1.0 + 1 / 64, 1.25, 2.0)
_N_NAMES = 5
_TABLE_ROWS = 16
Bin = tuple[float, float, float]


class Bars(NamedTuple):
    """(low, high, count) each. An end that is None is open; where both are, the count is of what is no number."""

    name: str
    bins: Sequence[Sequence[float | None]]
    kind: str = "k0"


class Axis(NamedTuple):
    """Values -> places, from 0 to 1."""

    low: float
    high: float
    even: bool

    def place(self, value: float) -> float:
        low, high = self._bent(self.low), self._bent(self.high)
        return (self._bent(value) - low) / (high - low) if high > low else 0.0

    def _bent(self, value: float) -> float:
        if self.even:
            return value
        size = abs(value)
        return math.copysign(size if size < 1 else 1 + math.log2(size), value)

    def names(self) -> list[float]:
        """Return the values to label: evenly spaced, or powers of ten."""
        if self.even:
            high = 1.0 if self.high == 1.0 + _FINEST else self.high  # the bin of exactly 1 has a width, and no name
            return [self.low + (high - self.low) * i / (_N_NAMES - 1) for i in range(_N_NAMES)]
        ends = [-(10.0**i) for i in range(12, -1, -1)] + [0.0] + [10.0**i for i in range(13)]
        inside = [v for v in ends if self.low <= v <= self.high]
        step = -(-len(inside) // (_N_NAMES + 1)) or 1
        return inside[::step]


def histogram_chart(
    label: str,
    sets: Sequence[Bars],
    show: Callable[[float], str] = count_text,
    marks: Sequence[float] = (),
    shade: Sequence[tuple[float, float]] = (),
    with_table: bool = False,
) -> str:
    """Draw a histogram; return "" if nothing was counted.

    `marks`: thresholds to show. One that is far from all values is named below the chart. `shade`: ranges of values
    that are dropped. `with_table`: the counts follow, folded.
    """
    known = [_known(s.bins) for s in sets]
    every = [b for bins in known for b in bins]
    if not every:
        return ""
    marks = [float(mark) for mark in marks if _end(mark) is not None]
    if not (axis := _axis(every, marks)).even:
        every = _coarsen(every)
        axis = _axis(every, marks)
    groups = _groups(every, axis)
    counts = [_counts(bins, groups) for bins in known]
    widths = [_place(start, end, axis)[1] for start, end in groups]
    most = max(n / width for count in counts for n, width in zip(count, widths, strict=True))
    parts = [_draw_shade(low, high, axis) for low, high in shade]
    for i, (bars, count) in enumerate(zip(sets, counts, strict=True)):
        inset = 0.06 + 0.16 * i  # a set in front is narrower: both stay visible
        parts += _draw_bars(bars.kind, groups, count, most, axis, inset)
    parts += _hits(groups, sets, counts, axis, show)
    parts += _draw_marks(marks, axis)
    keys = [Key(s.kind, s.name, _total_text(bins)) for s, bins in zip(sets, known, strict=True)]
    notes = _notes(sets, marks, axis, show)
    svg = (
        f'<svg class="alone" role="img" aria-label="{text(label)}" width="100%" height="{_HEIGHT + 20}">'
        f'<svg width="100%" height="{_HEIGHT}" viewBox="0 0 {WIDTH} {_HEIGHT}" preserveAspectRatio="none">'
        f'<path class="base" d="M0 {_HEIGHT}H{WIDTH}"/>{"".join(parts)}</svg>{_names(axis, show)}</svg>'
    )
    chart = figure(svg, keys, " ".join(notes))
    return chart + _table(label, groups, sets, counts, show) if with_table else chart


def _table(
    label: str,
    groups: Sequence[tuple[float, float]],
    sets: Sequence[Bars],
    counts: Sequence[Sequence[float]],
    show: Callable[[float], str],
) -> str:
    """Return the counts as drawn, neighbours joined to at most `_TABLE_ROWS` rows."""
    step = -(-len(groups) // _TABLE_ROWS)
    rows = []
    for first in range(0, len(groups), step):
        last = min(first + step, len(groups))
        cells = [f"{sum(count[first:last]):,.0f}" for count in counts]
        rows.append([text(f"{show(groups[first][0])} to {show(groups[last - 1][1])}"), *cells])
    return folded_table(label, ["from, to", *(s.name for s in sets)], rows, range(1, len(sets) + 1))


def _draw_shade(low: float, high: float, axis: Axis) -> str:
    """Return the ground behind the values that are dropped."""
    left, right = (axis.place(min(max(end, axis.low), axis.high)) * WIDTH for end in (low, high))
    if right <= left:
        return ""
    return f'<rect class="shade" x="{coordinate(left)}" y="0" width="{coordinate(right - left)}" height="{_HEIGHT}"/>'


def _axis(bins: Sequence[Bin], marks: Sequence[float]) -> Axis:
    """Return an even axis for shares, from zero to a round end, so that charts can be compared.

    Other values: an axis from the lowest to the highest. It reaches to thresholds that are not far from the values.
    """
    low, high = min(b[0] for b in bins), max(b[1] for b in bins)
    reach = _REACH * max(abs(low), abs(high))
    even = low >= -2 and high <= 2
    near = [mark for mark in marks if abs(mark) <= reach and (not even or abs(mark) <= 2)]
    low, high = min([low, *near]), max([high, *near])
    if even:
        end = next(e for e in _ENDS if e >= high)
        return Axis(0.0 if low >= 0 else -next(e for e in _ENDS if e >= -low), end if high > 0 else 0.0, True)
    return Axis(low, high, False)


def _coarsen(bins: Sequence[Bin]) -> list[Bin]:
    """Return bins that are alike on an axis by powers of two: four from one power to the next.

    Bins are recorded finer up to 16 (engine/histograms.py), so that joining them splits none. Whole numbers fill only
    every fourth of those; they get bins of one, or the empty ones would make the others look crowded.
    """
    small = [low for low, _, _ in bins if 0 <= low < _FINE_END]
    unit = 1.0 if all(low == int(low) for low in small) else 0.0
    return [(*_coarse_ends(low, high, unit), n) for low, high, n in bins]


def _coarse_ends(low: float, high: float, unit: float) -> tuple[float, float]:
    if low < 0:
        start, end = _coarse_ends(-high, -low, unit)
        return -end, -start
    if not (low >= _FINE_BEGIN or unit) or low >= _FINE_END:
        return low, high
    width = max(2.0 ** math.floor(math.log2(low)) / 4 if low else 0.0, unit)
    start = math.floor(low / width) * width
    return start, max(high, start + width)


def _draw_bars(
    kind: str,
    groups: Sequence[tuple[float, float]],
    count: Sequence[float],
    most: float,
    axis: Axis,
    inset: float,
) -> list[str]:
    """Return the bars of one set; `most`: count per width of a full bar, `inset`: share of it free at each side."""
    rects = []
    for (start, end), n in zip(groups, count, strict=True):
        if not n:
            continue
        left, wide = _place(start, end, axis)
        tall = max(n / wide / most * (_HEIGHT - 6), 1.0)
        rects.append(
            f'<rect class="fill {kind}" x="{coordinate(left + wide * inset)}" y="{coordinate(_HEIGHT - tall)}" '
            f'width="{coordinate(max(wide - 2 * (wide * inset), 0.5))}" height="{coordinate(tall)}"/>'
        )
    return rects


def _hits(
    groups: Sequence[tuple[float, float]],
    sets: Sequence[Bars],
    counts: Sequence[Sequence[float]],
    axis: Axis,
    show: Callable[[float], str],
) -> list[str]:
    """Return an area over each group that shows its range and its count in every set."""
    hits = []
    for i, (start, end) in enumerate(groups):
        figures = [f"{bars.name}: {count[i]:,.0f}" for bars, count in zip(sets, counts, strict=True)]
        hits.append(_hit(_place(start, end, axis), [f"{show(start)} to {show(end)}", *figures]))
    return hits


def _hit(place: tuple[float, float], lines: Sequence[str]) -> str:
    """Return the invisible area over a bar that shows its figures."""
    left, wide = place
    return (
        f'<g class="hit"><rect x="{coordinate(left)}" y="0" width="{coordinate(wide)}" height="{_HEIGHT}"/>'
        f"<title>{text(chr(10).join(lines), 400)}</title></g>"
    )


def _draw_marks(marks: Sequence[float], axis: Axis) -> list[str]:
    """Return a line for each threshold inside the range."""
    return [
        f'<path class="limit" d="M{coordinate(axis.place(mark) * WIDTH)} 0V{_HEIGHT}"/>'
        for mark in marks
        if axis.low <= mark <= axis.high
    ]


def _total_text(bins: Sequence[Bin]) -> str:
    return f"{sum(n for _, _, n in bins):,.0f}"


def _notes(sets: Sequence[Bars], marks: Sequence[float], axis: Axis, show: Callable[[float], str]) -> list[str]:
    """Return sentences on what the chart does not show: limits outside the axis, and what is no number."""
    notes = [
        f"The limit {show(mark)} is {'below' if mark < axis.low else 'above'} all values shown."
        for mark in marks
        if not axis.low <= mark <= axis.high
    ]
    if odd := sum(_count_odd(s.bins) for s in sets):
        notes.append(f"{odd:,.0f} are no numbers and not shown.")
    return notes


def _count_odd(bins: Sequence[Sequence[float | None]]) -> float:
    """Return the count of values that are no numbers: that of the bins with two open ends."""
    return sum(number(b[2]) for b in bins[:MAX_BINS] if len(b) == 3 and b[0] is None and b[1] is None)


def _known(bins: Sequence[Sequence[float | None]]) -> list[Bin]:
    """Return bins that can be drawn; open ends get one as wide as their neighbour."""
    counted = [(_closed_range(b[0], b[1]), number(b[2])) for b in bins[:MAX_BINS] if len(b) == 3 and number(b[2])]
    finite = [(*ends, n) for ends, n in counted if ends is not None]
    if finite and max(finite, key=lambda b: b[1])[:2] == _OF_ONE and any(b[1] <= 1 for b in finite):
        # Shares: what the bin from 1 to 1.25 holds is exactly 1, and belongs next to the others.
        finite = [(1.0, 1.0 + _FINEST, n) if (low, high) == _OF_ONE else (low, high, n) for low, high, n in finite]
    return finite


def _closed_range(start: object, stop: object) -> tuple[float, float] | None:
    """Return the ends of a bin; an open one is twice the other. None if there is nothing between them."""
    low, high = _end(start), _end(stop)
    if low is None and high is not None:
        low = 2 * min(high, -1.0)
    elif high is None and low is not None:
        high = 2 * max(low, 1.0)
    return (low, high) if low is not None and high is not None and low < high else None


def _end(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 2.0**60 or value != value:
        return None
    return float(value)


def _groups(bins: Sequence[Bin], axis: Axis) -> list[tuple[float, float]]:
    """Return the stretches that are drawn as one bar each: bins, with neighbours that are too narrow to be seen."""
    groups: list[tuple[float, float]] = []
    for low, high in sorted({(b[0], b[1]) for b in bins}):
        if groups and low < groups[-1][1]:  # bins of another kind over these: one bar
            groups[-1] = (groups[-1][0], max(groups[-1][1], high))
        elif groups and axis.place(low) - axis.place(groups[-1][0]) < _NARROW:
            groups[-1] = (groups[-1][0], high)
        else:
            groups.append((low, high))
    return groups


def _place(start: float, end: float, axis: Axis) -> tuple[float, float]:
    """Return the left end and width: wide enough to be seen."""
    wide = max(axis.place(end) - axis.place(start), _NARROW)
    return min(axis.place(start), 1 - wide) * WIDTH, wide * WIDTH


def _counts(bins: Sequence[Bin], groups: Sequence[tuple[float, float]]) -> list[float]:
    starts = [g[0] for g in groups]
    counts = [0.0] * len(groups)
    for low, _, n in bins:
        counts[bisect.bisect_right(starts, low) - 1] += n
    return counts


def _names(axis: Axis, show: Callable[[float], str]) -> str:
    parts = []
    for value in axis.names():
        percent = 100 * axis.place(value)
        anchor = "start" if percent < 4 else "end" if percent > 96 else "middle"
        parts.append(
            f'<text x="{coordinate(percent)}%" y="{_HEIGHT + 15}" text-anchor="{anchor}">{text(show(value))}</text>'
        )
    return "".join(parts)
