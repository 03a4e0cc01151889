"""Sizes in bytes <-> text, and the checks of other numbers that users give. The only place that parses or prints sizes.

MB = 10**6 and MiB = 2**20, as everywhere in Tamis. A bare number is bytes.
"""

from __future__ import annotations

import math
import numbers
import re
from typing import Any

from tamis.errors import UsageError

_UNITS = {
    "": 1,
    "b": 1,
    "k": 10**3,
    "kb": 10**3,
    "m": 10**6,
    "mb": 10**6,
    "g": 10**9,
    "gb": 10**9,
    "t": 10**12,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_PATTERN = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([A-Za-z]*)\s*")


def parse_size(value: str | int | float, what: str = "size") -> int:
    """Parse bytes from 2_000_000, "2MB", "1.5 GiB".

    >>> parse_size("512MB"), parse_size("1GiB"), parse_size(100)
    (512000000, 1073741824, 100)
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise UsageError(f"{what}: expected a size such as '512MB' or '1GiB', got {value!r}")
    if isinstance(value, (int, float)):
        number, unit = float(value), 1
    else:
        match = _PATTERN.fullmatch(value)
        if match is None or match.group(2).lower() not in _UNITS:
            raise UsageError(
                f"{what}: cannot read {value!r} as a size; write a number and a unit, e.g. '512MB' (10^6) or '1GiB' "
                "(2^30)"
            )
        number, unit = float(match.group(1)), _UNITS[match.group(2).lower()]
    if not 1 <= number * unit < 2**63:  # false for NaN too
        raise UsageError(f"{what}: must be above zero and below 8 EiB, got {value!r}")
    return int(number * unit)


def format_size(n_bytes: float) -> str:
    """Format bytes in decimal units with three significant digits.

    >>> format_size(512_000_000), format_size(1536), format_size(0)
    ('512 MB', '1.54 kB', '0 B')
    """
    sign, n_bytes = ("-" if n_bytes < 0 else ""), abs(n_bytes)
    for unit, scale in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n_bytes >= scale * 0.9995:
            return f"{sign}{_three(n_bytes / scale)} {unit}"
    return f"{sign}{int(n_bytes)} B"


def format_speed(mb_per_s: float) -> str:
    """Format megabytes per second; a slow run gets a unit in which it is not 0.

    >>> format_speed(1234.56), format_speed(12.34), format_speed(0.0392)
    ('1,234.6 MB/s', '12.3 MB/s', '39.2 kB/s')
    """
    return f"{mb_per_s:,.1f} MB/s" if mb_per_s >= 0.95 or not mb_per_s else f"{format_size(mb_per_s * 1e6)}/s"


def _three(x: float) -> str:
    text = f"{x:.2f}" if x < 9.995 else f"{x:.1f}" if x < 99.95 else f"{x:.0f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def parse_fraction(value: str | float, what: str = "fraction") -> float:
    """Parse a share between 0 and 1: 0.01 or "1%"."""
    try:
        text = str(value).strip()
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise UsageError(f"{what}: expected a share such as '1%' or 0.01, got {value!r}") from None
    if not 0 < share <= 1:
        raise UsageError(f"{what}: must be above 0 and at most 100%, got {value!r}")
    return share


def is_integer(value: Any, low: int = 1, high: int | None = None) -> bool:
    """Return True if `value` is a whole number from `low` to `high`: no bool, no float, no text.

    >>> [is_integer(value) for value in (1, 0, 1.5, 2.0, True, "50", float("nan"))]
    [True, False, False, False, False, False, False]
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        return False
    return low <= int(value) and (high is None or int(value) <= high)


def check_integer(value: Any, what: str, low: int = 1, high: int | None = None) -> None:
    """Raise UsageError unless `value` is a whole number from `low` to `high`. `what`: the parameter."""
    if not is_integer(value, low, high):
        bounds = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise UsageError(f"{what}: expected a whole number {bounds}, got {value!r}")


def check_optional_integer(value: Any, what: str, low: int = 1, high: int | None = None) -> None:
    """Check an integer as `check_integer` does; None is allowed."""
    if value is not None:
        check_integer(value, what, low, high)


def is_number(value: Any) -> bool:
    """Return True if `value` is a finite number and no bool."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)


def check_seconds(value: Any, what: str) -> None:
    """Raise UsageError unless `value` is a finite number above zero."""
    if not is_number(value) or value <= 0:
        raise UsageError(f"{what}: expected a number of seconds above zero, got {value!r}")


def check_amount(value: Any, what: str) -> None:
    """Raise UsageError unless `value` is a finite number of at least zero."""
    if not is_number(value) or value < 0:
        raise UsageError(f"{what}: expected a number of at least 0, got {value!r}")
