"""Documents per second that each stage takes in, over time; and bytes of input per second of the whole run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tamis.observe.pictures.lines import MAX_LINES, Line, lines_picture
from tamis.observe.pictures.svg import count_text, number
from tamis.sizes import format_size

_SMOOTH_S = 6.0  # commits come in bursts: rates are taken over at least this long


def rates(counts: Sequence[tuple[float, float]], over_s: float = _SMOOTH_S) -> list[tuple[float, float]]:
    """Counts that only grow -> their rate per second, each over at least `over_s`. A count that falls begins anew.

    >>> rates([(0, 0), (10, 50), (20, 250)])
    [(10, 5.0), (20, 20.0)]
    """
    found = []
    first = 0
    for i, (at, n) in enumerate(counts):
        if i and n < counts[i - 1][1]:
            first = i
        while first + 1 < i and at - counts[first + 1][0] >= over_s:
            first += 1
        before_at, before = counts[first]
        if at > before_at and (at - before_at >= over_s or i == len(counts) - 1):
            found.append((at, max(n - before, 0.0) / (at - before_at)))
    return found


def throughput_picture(stages: Mapping[str, Sequence[tuple[float, float]]], began_at: float = 0.0) -> str:
    """`stages`: of each stage, in order, (seconds, documents taken in so far)."""
    lines = [Line(name, rates(points)) for name, points in stages.items()]
    note = ""
    if len(lines) > MAX_LINES:
        slow = sorted(lines, key=lambda line: sum(number(v) for _, v in line.points))[: MAX_LINES - 1]
        note = f"The {len(slow) + 1} stages that take in fewest of {len(lines)}; the table of stages has all."
        chosen = [lines[0], *slow]
        lines = [line for line in lines if any(line is c for c in chosen)]
    return lines_picture("documents per second by stage", lines, lambda v: f"{count_text(v)}/s", began_at, note=note)


def speed_picture(read: Sequence[tuple[float, float]], began_at: float = 0.0) -> str:
    """`read`: (seconds, bytes of input read so far)."""
    lines = [Line("input read", rates(read), area=True)]
    return lines_picture("bytes of input per second", lines, lambda v: f"{format_size(v)}/s", began_at, height=110)
