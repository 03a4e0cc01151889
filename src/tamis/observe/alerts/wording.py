"""Units of what alerts compare: how rule files write times, and how sentences say shares, sizes, times and degrees.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tamis.errors import UsageError
from tamis.sizes import format_size

MAX_S = 366 * 86400.0
_TIME = re.compile(r"\s*([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*(s|sec|min|h|d)\s*")
_SECONDS = {"s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def parse_time(value: object, what: str) -> float:
    """Parse seconds from 30, "30s", "5min", "1.5h", "2d".

    >>> parse_time("5min", "for"), parse_time(30, "for")
    (300.0, 30.0)
    """
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is not None:
        seconds = float(match[1]) * _SECONDS[match[2]]
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = float(value) if abs(value) <= MAX_S else MAX_S * 2
    else:
        raise UsageError(f"{what}: expected a time such as 30s, 5min, 2h or 1d, got {value!r:.80}")
    if not 0 <= seconds <= MAX_S:  # false for NaN too
        raise UsageError(f"{what}: expected a time from 0 to 366d, got {value!r:.80}")
    return seconds


def time_text(seconds: float) -> str:
    """Format a duration in words.

    >>> time_text(34.4), time_text(312), time_text(12_000), time_text(0.25)
    ('34 s', '5 min 12 s', '3 h 20 min', '0.25 s')
    """
    if seconds < 1:
        return f"{max(seconds, 0.0):.2g} s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    return f"{whole // 3600} h {whole // 60 % 60} min"


def share_text(share: float) -> str:
    """Format a share as a percentage.

    >>> share_text(0.914), share_text(0.0005), share_text(1.0), share_text(12.5)
    ('91 %', '0.05 %', '100 %', '1250 %')
    """
    percent = 100 * share
    return f"{percent:.0f} %" if percent >= 10 or percent == 0 else f"{percent:.2g} %"


# An example of a limit in this unit in a file, and the wording of an amount.
UNITS: dict[str, tuple[str, Callable[[float], str]]] = {
    "share": ("a share such as 85%", share_text),
    "bytes": ("a size such as 1GB", format_size),
    "seconds": ("a time such as 5min", time_text),
    "number": ("a number", lambda n: f"{n:,.3g}"),
    "degrees": ("a number of degrees", lambda degrees: f"{degrees:.3g} °C"),
}


class Amount(float):
    """A number that messages show in its unit.

    >>> f"{Amount(0.85):share} or {Amount(1e9):bytes} after {Amount(300):seconds}"
    '85 % or 1 GB after 5 min'
    >>> f"{Amount(80):degrees}, {Amount(4e3):,.0f} times"
    '80 °C, 4,000 times'
    """

    def __format__(self, unit: str) -> str:
        return UNITS[unit][1](float(self)) if unit in UNITS else format(float(self), unit)
