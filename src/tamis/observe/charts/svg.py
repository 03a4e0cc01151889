"""Elements of all charts: escaping, clean numbers, ticks, and a frame for values over time.

A frame is as wide as its place: the curves are in an inner chart that is stretched to the width, labels are next to it
and are not. So one and the same text fits a phone and a desktop, and no script is needed.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import NamedTuple

from tamis.terminal import time_of_day

WIDTH = 1000  # of the inner chart, in its own units
MAX_HITS = 60  # places of a chart that show their values under the pointer
MAX_NAME = 120
_LARGEST = 1e300
_NOT_XML = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]")
_UNSEEN = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")  # would reorder or hide what follows
_TIME_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


def text(value: object, n_chars: int = MAX_NAME) -> str:
    r"""Convert any value to text for XML: escaped, of bounded length, without characters that XML forbids.

    >>> text("<b>\x00")
    '&lt;b&gt;\ufffd'
    """
    plain = str("" if value is None else value)
    if len(plain) > n_chars:
        plain = plain[: n_chars - 1] + "…"
    return visible(plain)


def visible(plain: str) -> str:
    """Return text for XML, with characters that would not be seen made visible."""
    if plain.isascii() and plain.replace("\n", "").replace("\t", "").isprintable():
        return escape(plain)
    return escape(_UNSEEN.sub("\u00b7", _NOT_XML.sub("\ufffd", plain)))


def number(value: object) -> float:
    """Return a number that can be drawn; 0 for anything else.

    >>> number(3), number(float("nan")), number(-1), number("7"), number(None)
    (3.0, 0.0, 0.0, 0.0, 0.0)
    """
    if type(value) is int or type(value) is float:
        return float(value) if 0 < value < _LARGEST else 0.0
    return 0.0


def share_text(n: float, whole: float) -> str:
    """Format a share, without calling something nothing.

    >>> share_text(491, 1000), share_text(1, 17627), share_text(0, 5)
    ('49.1%', '<0.1%', '0.0%')
    """
    return "<0.1%" if 0 < n < 0.0005 * whole else f"{n / whole:.1%}"


def coordinate(value: float) -> str:
    """Format a coordinate with one digit after the decimal point, or none if that digit is 0."""
    return f"{value:.1f}".removesuffix(".0")


def seconds_text(seconds: float) -> str:
    """Format a duration for an axis.

    >>> seconds_text(5), seconds_text(90), seconds_text(7200), seconds_text(200_000)
    ('5 s', '1.5 min', '2 h', '2.3 d')
    """
    for unit, scale in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= scale:
            return f"{coordinate(seconds / scale)} {unit}"
    return f"{coordinate(seconds)} s"


def moment_text(time_s: float, began_at: float) -> str:
    """Format seconds since the run began, with the time of day if known."""
    return f"{seconds_text(time_s)} ({time_of_day(began_at + time_s)})" if began_at else seconds_text(time_s)


def count_text(n: float) -> str:
    """Format a count for an axis.

    >>> count_text(0.5), count_text(950), count_text(12_300), count_text(4_560_000)
    ('0.5', '950', '12.3 k', '4.56 M')
    """
    for unit, scale in ((" G", 1e9), (" M", 1e6), (" k", 1e3)):
        if n >= scale * 0.9995:
            return f"{n / scale:.3g}{unit}"
    return f"{n:.3g}"


def ticks(top: float, n: int = 4) -> list[float]:
    """Round values from above zero up to `top`, at most n of them.

    >>> ticks(512e6), ticks(0)
    ([200000000.0, 400000000.0], [])
    """
    if top < sys.float_info.min * n or not math.isfinite(top):  # nothing, or too little to be divided
        return []
    step = 10.0 ** math.floor(math.log10(top / n))
    step *= next((m for m in (1, 2, 5, 10) if top / (step * m) <= n), 10)
    return [step * i for i in range(1, int(top / step) + 1)] if step > 0 else []


def time_ticks(start: float, end: float, n: int = 4) -> list[float]:
    """Round distances from the start of the run, between `start` and `end`.

    >>> time_ticks(0, 100)
    [0, 30, 60, 90]
    """
    span = end - start
    if not span > 0 or not math.isfinite(span):
        return [start]
    step: float = next((s for s in _TIME_STEPS if span / s < n), 0) or 86400 * math.ceil(span / 86400 / (n - 1))
    first = math.ceil(start / step)
    return [step * i for i in range(first, first + n + 1) if start <= step * i <= end]


def picked(n: int, most: int) -> list[int]:
    """Return at most `most` of n positions, evenly, always with the last.

    >>> picked(3, 9), picked(10, 4)
    ([0, 1, 2], [0, 3, 6, 9])
    """
    if n <= most:
        return list(range(n))
    return [round(i * (n - 1) / (most - 1)) for i in range(most)]


class Key(NamedTuple):
    """One entry of a legend. `kind` is a class of style.CSS."""

    kind: str
    name: str
    value: str = ""


class Frame(NamedTuple):
    """The place of values over time. Times are seconds since the run began."""

    start: float
    end: float
    top: float
    height: int = 180

    def x(self, time_s: float) -> float:
        share = (time_s - self.start) / (self.end - self.start) if self.end > self.start else 0.0
        return WIDTH * min(max(share, 0.0), 1.0)

    def y(self, value: float) -> float:
        share = value / self.top if self.top > 0 else 0.0
        return self.height * (1 - min(max(share, 0.0), 1.0))

    def line(self, points: Iterable[tuple[float, float]]) -> str:
        """Return the path through points of (time, value)."""
        return "M" + "L".join(f"{self.x(at):.0f} {self.y(value):.1f}" for at, value in points)

    def band(self, lower: Sequence[tuple[float, float]], upper: Sequence[tuple[float, float]]) -> str:
        """Return the path around the area between two lines."""
        return self.line([*upper, *reversed(lower)]) + "Z"

    def hits(self, rows: Sequence[tuple[float, str]]) -> str:
        """Draw columns that show their text under the pointer: (time, text); the text is escaped here."""
        if not rows:
            return ""
        chosen = [rows[i] for i in picked(len(rows), MAX_HITS)]
        xs = [self.x(at) for at, _ in chosen]
        parts = []
        for i, (x, (_, says)) in enumerate(zip(xs, chosen, strict=True)):
            left = (xs[i - 1] + x) / 2 if i else 0.0
            right = (x + xs[i + 1]) / 2 if i + 1 < len(xs) else float(WIDTH)
            parts.append(
                f'<g class="hit"><rect x="{coordinate(left)}" y="0" width="{coordinate(max(right - left, 0.1))}" '
                f'height="{self.height}"/><path d="M{coordinate(x)} '
                f'0V{self.height}"/><title>{text(says, 2000)}</title></g>'
            )
        return "".join(parts)

    def draw(self, label: str, body: str, show: Callable[[float], str], marks: str = "", behind: str = "") -> str:
        """Draw the whole chart.

        `body` and `behind` are stretched to the width (`behind` is drawn before the grid, `body` after it), `marks` are
        not.
        """
        h = self.height
        rows = [(self.y(v), show(v)) for v in ticks(self.top)]
        grid = "".join(f"M0 {coordinate(y)}H{WIDTH}" for y, _ in rows)
        names = "".join(
            f'<text x="100%" dx="-6" y="{coordinate(max(y + 4, 10))}">{text(name)}</text>' for y, name in rows
        )
        return (
            f'<div class="plot"><svg class="scale" width="62" height="{h + 20}" aria-hidden="true">{names}</svg>'
            f'<svg role="img" aria-label="{text(label)}" width="100%" height="{h + 20}">'
            f'<svg width="100%" height="{h}" viewBox="0 0 {WIDTH} {h}" preserveAspectRatio="none">'
            f'{behind}<path class="grid" d="{grid}"/><path class="base" d="M0 '
            f'{h}H{WIDTH}"/>{body}</svg>{self._times()}{marks}</svg></div>'
        )

    def _times(self) -> str:
        parts = []
        for at in time_ticks(self.start, self.end):
            percent = self.x(at) / WIDTH * 100
            anchor = "start" if percent < 4 else "end" if percent > 94 else "middle"
            says = seconds_text(at) if at else "0"
            parts.append(
                f'<text x="{coordinate(percent)}%" y="{self.height + 15}" text-anchor="{anchor}">{says}</text>'
            )
        return "".join(parts)


def legend(keys: Sequence[Key]) -> str:
    if not keys:
        return ""
    items = "".join(
        f'<li><i class="{k.kind}"></i>{text(k.name, 40)}{f" <b>{text(k.value)}</b>" if k.value else ""}</li>'
        for k in keys
    )
    return f'<ul class="legend">{items}</ul>'


def figure(drawn: str, keys: Sequence[Key] = (), note: str = "") -> str:
    """Return a chart with its legend and one sentence below.

    `drawn` is SVG; the rest is escaped here.
    """
    caption = f"<figcaption>{text(note, 400)}</figcaption>" if note else ""
    return f"<figure>{drawn}{legend(keys)}{caption}</figure>"
