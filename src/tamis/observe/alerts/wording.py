"""How alerts say shares, times and amounts, and how rule files write times. Pure."""

from __future__ import annotations

import re

from tamis.errors import UsageError
from tamis.sizes import format_size

MAX_S = 366 * 86400.0
_TIME = re.compile(r"\s*([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*(s|sec|min|h|d)\s*")
_UNITS = {"s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def parse_time(value: object, what: str) -> float:
    """Seconds in `value`: 30, "30s", "5min", "1.5h", "2d".

    >>> parse_time("5min", "for"), parse_time(30, "for")
    (300.0, 30.0)
    """
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is not None:
        seconds = float(match[1]) * _UNITS[match[2]]
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = float(value) if abs(value) <= MAX_S else MAX_S * 2
    else:
        raise UsageError(f"{what}: expected a time such as 30s, 5min, 2h or 1d, got {value!r:.80}")
    if not 0 <= seconds <= MAX_S:  # false for NaN too
        raise UsageError(f"{what}: expected a time from 0 to 366d, got {value!r:.80}")
    return seconds


def time_text(seconds: float) -> str:
    """
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
    """
    >>> share_text(0.914), share_text(0.0005), share_text(1.0), share_text(12.5)
    ('91 %', '0.05 %', '100 %', '1250 %')
    """
    percent = 100 * share
    return f"{percent:.0f} %" if percent >= 10 or percent == 0 else f"{percent:.2g} %"


def amount_text(amount: float, unit: str) -> str:
    """
    >>> amount_text(0.85, "share"), amount_text(1e9, "bytes"), amount_text(300, "seconds"), amount_text(80, "degrees")
    ('85 %', '1 GB', '5 min', '80 °C')
    """
    if unit == "share":
        return share_text(amount)
    if unit == "bytes":
        return format_size(amount)
    return time_text(amount) if unit == "seconds" else f"{amount:.3g} °C"
