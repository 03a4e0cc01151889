"""Memory over time, stacked by process: supervisor, forking server, each worker.

Against the budget, with pressure levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tamis.observe.charts.svg import (
    MAX_HITS,
    WIDTH,
    Frame,
    Key,
    coordinate,
    figure,
    moment_text,
    number,
    picked,
    seconds_text,
    text,
)
from tamis.observe.points import Total
from tamis.sizes import format_size

MAX_WORKERS = 6  # drawn one by one; the rest together
_MAX_POINTS = 200
# Of memory/pressure.py: percent of the budget from which on a level holds, and what it means.
LEVELS = (
    (70, 80, "l1", "70 % no growth"),
    (80, 90, "l2", "80 % only the end of the pipeline starts"),
    (90, 97, "l3", "90 % workers are stopped"),
    (97, 100, "l4", "97 % one worker"),
)


class Layer(NamedTuple):
    name: str
    kind: str
    values: list[float]


def layers(points: Sequence[Total]) -> list[Layer]:
    """Return the layers of the stack, from the bottom up.

    Workers are in the order of their numbers; those that used most are drawn one by one.
    """
    shown, has_more = _shown_workers(points)
    result = [
        Layer("supervisor", "k7", [number(p.supervisor_bytes) for p in points]),
        Layer("forking server", "k6", [number(p.server_bytes) for p in points]),
    ]
    result += [
        Layer(f"worker {name[:20]}", f"k{i}", [number(p.workers.get(name)) for p in points])
        for i, name in enumerate(shown)
    ]
    if has_more:
        rest = [sum(number(v) for k, v in p.workers.items() if k not in shown) for p in points]
        result.append(Layer("other workers", "k8", rest))
    known = [sum(layer.values[i] for layer in result) for i in range(len(points))]
    result += _unexplained(points, known)
    return [layer for layer in result if any(layer.values)]


def _shown_workers(points: Sequence[Total]) -> tuple[list[str], bool]:
    """Return the workers that are drawn one by one, and whether there are others."""
    total: dict[str, float] = {}
    for p in points:
        for name, used in p.workers.items():
            total[name] = total.get(name, 0.0) + number(used)
    living = points[-1].workers if points else {}
    first = sorted(total, key=lambda n: (n in living, total[n]), reverse=True)[:MAX_WORKERS]
    shown = sorted(first, key=lambda n: (int(n) if n.isdecimal() else 1 << 60, n))
    return shown, len(total) > len(shown)


def _unexplained(points: Sequence[Total], known: Sequence[float]) -> list[Layer]:
    """Return a layer of the bytes beyond the known ones, or none where they are not worth showing."""
    other = [max(number(p.used_bytes) - known[i], 0.0) for i, p in enumerate(points)]
    if not any(o > 0.01 * number(p.used_bytes) for o, p in zip(other, points, strict=True)):
        return []
    return [Layer("other", "k8", other) if any(known) else Layer("in use", "k0", other)]


def memory_chart(
    points: Sequence[Total], budget_bytes: float, began_at: float = 0.0, live: bool = False, of_what: str = ""
) -> str:
    """Draw memory over time. `points`: seconds since the start; the unexplained part of `used_bytes` is "other".

    `live`: the run continues, so that a forecast makes sense; `of_what`: what the peak is of, if not of the run.
    Nothing for a run without samples.
    """
    budget = number(budget_bytes)
    if not points or budget <= 0:
        return ""
    points = _thinned(points)
    left_s = seconds_to_limit([(p.at, number(p.used_bytes)) for p in points], budget) if live else None
    start, last = points[0].at, points[-1].at
    end = max(last, start + 1.0)
    shown_s = 0.0
    if left_s is not None:
        shown_s = min(left_s, max((end - start) * 0.2, 5.0))
        end += shown_s
    most = max(max(number(p.used_bytes), number(p.peak_bytes)) for p in points)
    frame = Frame(start, end, max(budget * 1.08, most * 1.05), 220)
    stack = layers(points)
    body, keys = _stacked(frame, points, stack)
    if any(number(p.peak_bytes) > number(p.used_bytes) for p in points) and len(points) > 1:
        body += _peaks(frame, points, keys)
    if left_s is not None:
        used = number(points[-1].used_bytes)
        then = used + (budget - used) * shown_s / left_s
        body += f'<path class="ahead" d="{frame.line([(last, used), (end, then)])}"/>'
    body += _levels_over_time(frame, points)
    limit, marks = _limit(frame, budget)
    body += limit
    for low, high, _, name in LEVELS[:3]:  # the last one is too narrow to be written in
        middle = frame.y(budget * (low + high) / 200)
        marks += f'<text class="quiet" x="6" y="{coordinate(middle + 4)}">{text(name)}</text>'
    body += frame.hits(
        [(points[i].at, _says(points[i], stack, i, budget, began_at)) for i in picked(len(points), MAX_HITS)]
    )
    note = f"Peak{f' {of_what}' if of_what else ''} {format_size(most)}, {most / budget:.0%} of the budget." + (
        _trend_text(left_s) if live else ""
    )
    label = f"memory over time: {format_size(points[-1].used_bytes)} of {format_size(budget)} in use"
    return figure(frame.draw(label, body, format_size, marks, _bands(frame, budget)), keys, note)


def _peaks(frame: Frame, points: Sequence[Total], keys: list[Key]) -> str:
    """Return the line of the peaks between two samples, and add its key."""
    peaks = [(p.at, max(number(p.used_bytes), number(p.peak_bytes))) for p in points]
    keys.append(Key("peak", "highest in between", format_size(peaks[-1][1])))
    return f'<path class="peak" d="{frame.line(peaks)}"/>'


def _limit(frame: Frame, budget: float) -> tuple[str, str]:
    """Return the line of the budget, and its name."""
    y = frame.y(budget)
    name = (
        f'<text class="strong" x="100%" dx="-4" y="{coordinate(max(y - 4, 10))}" '
        f'text-anchor="end">budget {format_size(budget)}</text>'
    )
    return f'<path class="limit" d="M0 {coordinate(y)}H{WIDTH}"/>', name


def pass_memory_chart(passes: Sequence[tuple[str, Sequence[tuple[float, float]]]], budget_bytes: float) -> str:
    """Draw the memory of passes, one after another: of each its name and its moments (seconds, most in use).

    Nothing without moments or a budget.
    """
    budget, moments = number(budget_bytes), [moment for _, each in passes for moment in each]
    if not moments or budget <= 0:
        return ""
    most = max(number(used) for _, used in moments)
    frame = Frame(0.0, max(max(at for at, _ in moments), 1.0), max(budget * 1.08, most * 1.05), 160)
    limit, marks = _limit(frame, budget)
    body, keys, began, last = "", [], 0.0, number(moments[0][1])
    for i, (name, each) in enumerate(passes):
        kind = f"k{i % MAX_WORKERS}"
        line = [(began, last), *((max(at, began), number(used)) for at, used in each)]
        places = "L".join(f"{frame.x(at):.1f} {frame.y(used):.1f}" for at, used in line)
        began, last = line[-1]
        body += f'<path class="fill {kind}" d="M{frame.x(line[0][0]):.1f} {frame.height}L{places}V{frame.height}Z"/>'
        keys.append(Key(kind, name[:60], f"peak {format_size(max(used for _, used in each))}"))
    body += limit + frame.hits(
        [
            (
                at,
                f"{name}\n{seconds_text(round(at, 1))}: "
                f"{format_size(number(used))}, {number(used) / budget:.0%} of the budget",
            )
            for name, each in passes
            for at, used in (each[k] for k in picked(len(each), max(MAX_HITS // len(passes), 2)))
        ]
    )
    label = f"memory of all passes over time: at most {format_size(most)} of {format_size(budget)}"
    note = f"Peak {format_size(most)}, {most / budget:.0%} of the budget."
    return figure(frame.draw(label, body, format_size, marks, _bands(frame, budget)), keys, note)


def _trend_text(left_s: float | None) -> str:
    """Return a sentence about the time until the budget is reached."""
    if left_s is None:
        return " No clear rise: the time to the limit is unknown."
    return f" It rises: at this rate the budget is reached in {seconds_text(left_s)}."


def _thinned(points: Sequence[Total]) -> list[Total]:
    """Return the highest point of each bin, and the last point."""
    n = -(-len(points) // _MAX_POINTS)
    if n <= 1:
        return list(points)
    bins = [points[i : i + n] for i in range(0, len(points) - 1, n)]
    return [*(max(b, key=lambda p: max(number(p.used_bytes), number(p.peak_bytes))) for b in bins), points[-1]]


def _stacked(frame: Frame, points: Sequence[Total], stack: Sequence[Layer]) -> tuple[str, list[Key]]:
    times = [p.at for p in points]
    if len(times) == 1:  # one sample is a level, not a point
        times = [times[0], frame.end]
        stack = [Layer(s.name, s.kind, s.values * 2) for s in stack]
    # Every line is the upper end of one layer and the lower end of the next: it is written once.
    places = [f"{frame.x(at):.0f} " for at in times]
    heights = [0.0] * len(times)
    below = [f"{x}{frame.height}" for x in places]
    parts, keys = [], []
    for layer in stack:
        heights = [h + v for h, v in zip(heights, layer.values, strict=True)]
        above = [f"{x}{frame.y(h):.1f}" for x, h in zip(places, heights, strict=True)]
        parts.append(f'<path class="fill {layer.kind}" d="M{"L".join(above)}L{"L".join(reversed(below))}Z"/>')
        keys.append(Key(layer.kind, layer.name, format_size(layer.values[-1])))
        below = above
    return "".join(parts), keys


def _bands(frame: Frame, budget: float) -> str:
    parts = []
    for low, high, kind, _ in LEVELS:
        top, bottom = frame.y(budget * high / 100), frame.y(budget * low / 100)
        parts.append(
            f'<rect class="level {kind}" x="0" y="{coordinate(top)}" width="{WIDTH}" '
            f'height="{coordinate(bottom - top)}"/>'
        )
    return "".join(parts)


def _levels_over_time(frame: Frame, points: Sequence[Total]) -> str:
    """Draw a strip at the bottom that shows which level was in force when."""
    parts = []
    for i, p in enumerate(points):
        if p.level > 0:
            left = frame.x(p.at)
            right = frame.x(points[i + 1].at) if i + 1 < len(points) else frame.x(frame.end)
            kind = f"l{min(p.level, 4)}"
            parts.append(
                f'<rect class="strip {kind}" x="{coordinate(left)}" y="{frame.height - 6}" '
                f'width="{coordinate(max(right - left, 1.5))}" height="6"/>'
            )
    return "".join(parts)


def _says(p: Total, stack: Sequence[Layer], i: int, budget: float, began_at: float) -> str:
    rows = [
        moment_text(p.at, began_at),
        f"{format_size(number(p.used_bytes))}, {number(p.used_bytes) / budget:.0%} of the budget",
    ]
    if number(p.peak_bytes) > number(p.used_bytes):
        rows.append(f"highest in between: {format_size(number(p.peak_bytes))}")
    rows += [f"{layer.name}: {format_size(layer.values[i])}" for layer in reversed(stack) if layer.values[i]]
    if p.level > 0:
        rows.append("level: " + LEVELS[min(p.level, 4) - 1][3])
    return "\n".join(rows)


# -- how long until memory reaches the budget, if it grows as in the last minutes --------------------------------------
WINDOW_S = 120.0
MIN_POINTS = 8
_MAX_POINTS = 60  # pairs of them are compared: 1,770
_MIN_RISE = 0.01  # of the budget over the window; less is noise
_MIN_AGREEMENT = 0.5  # pairs that rise less pairs that fall, as a share of all (Kendall's tau)
_MAX_S = 7 * 86400.0


def seconds_to_limit(points: Sequence[tuple[float, float]], budget_bytes: float) -> float | None:
    """Extrapolate `points` (seconds, bytes), oldest first. None: no clear rise, or too far away to say.

    The slope is the median of the slopes between all pairs (Theil-Sen): a single partition more or less does not move
    it.

    >>> seconds_to_limit([(float(i), 100.0 + i) for i in range(10)], 209.0)
    100.0
    """
    if not points or budget_bytes <= 0:
        return None
    last_at, last = points[-1]
    recent = [p for p in points if last_at - p[0] <= WINDOW_S]
    recent = recent[:: -(-len(recent) // _MAX_POINTS)]
    if len(recent) < MIN_POINTS or last >= budget_bytes:
        return None
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for i, a in enumerate(recent) for b in recent[i + 1 :] if b[0] > a[0]]
    if not slopes:
        return None
    slopes.sort()
    slope = (slopes[(len(slopes) - 1) // 2] + slopes[len(slopes) // 2]) / 2
    agreement = (sum(s > 0 for s in slopes) - sum(s < 0 for s in slopes)) / len(slopes)
    if agreement < _MIN_AGREEMENT or slope * (recent[-1][0] - recent[0][0]) < _MIN_RISE * budget_bytes:
        return None
    left_s = (budget_bytes - last) / slope
    return left_s if left_s <= _MAX_S else None
