"""Parts of a plan as text: what is expected, between which bounds, how often that held."""

from __future__ import annotations

from collections.abc import Mapping

from tamis.forecast.prediction import Prediction, Span
from tamis.sizes import format_size
from tamis.terminal import clock


def sizes(span: Span) -> str:
    """Format an interval of sizes.

    >>> sizes({"low": 150e6, "expected": 200e6, "high": 300e6}), sizes({"low": 0, "expected": 0, "high": 0})
    ('about 200 MB (150 MB to 300 MB)', 'none')
    """
    if not span["high"]:
        return "none"
    return f"about {format_size(span['expected'])} ({format_size(span['low'])} to {format_size(span['high'])})"


def times(span: Span) -> str:
    """Format an interval of times.

    >>> times({"low": 1.2, "expected": 90, "high": 86400 * 3})
    'about 1:30 (1.2 s to 72:00:00)'
    """
    return f"about {format_time(span['expected'])} ({format_time(span['low'])} to {format_time(span['high'])})"


def range_words(forecast: Prediction) -> str:
    """Describe the ranges, and how often they held on this machine.

    >>> range_words({"confidence": 0.9, "held": {"peak_bytes": [45, 50], "command_seconds": [9, 10]}})
    'the ranges should contain the true value in 9 of 10 runs; here they did for 45 of 50 peaks and 9 of 10 times'
    >>> range_words({"confidence": 0.9, "held": {}})
    'the ranges should contain the true value in 9 of 10 runs'
    """
    counts = forecast.get("held") or {}
    words = "the ranges should contain the true value in 9 of 10 runs"
    if not all(name in counts for name in ("peak_bytes", "command_seconds")):
        return words
    peaks, seconds = counts["peak_bytes"], counts["command_seconds"]
    return f"{words}; here they did for {peaks[0]} of {peaks[1]} peaks and {seconds[0]} of {seconds[1]} times"


def format_time(seconds: float) -> str:
    """Format a time.

    >>> format_time(4.26), format_time(75)
    ('4.3 s', '1:15')
    """
    return clock(seconds) if seconds >= 60 else f"{seconds:.1f} s"


def guide_line(size: str, guide: Mapping[str, str]) -> str:
    """Return the line with the original's guide for data of that size."""
    facts = f"nodes {guide['nodes']}, GPUs {guide['gpus']}"
    facts += f", memory {guide['memory']}" if guide.get("memory") else ""
    facts += f"; {guide['notes']}" if guide.get("notes") else ""
    return f"NeMo Curator's guide for {size}: {facts} (a starting table, not a measurement)"


def too_small_line(smallest_bytes: int) -> str:
    """Return the line about a budget that is too small.

    >>> too_small_line(170_000_000)
    'the budget is too small: give --memory 170MB or more'
    """
    return f"the budget is too small: give --memory {-(-smallest_bytes // 10**6)}MB or more"


def budget_words(budget_bytes: int, smallest_bytes: int, is_measured: bool = True) -> str:
    """Describe a budget next to the smallest that works.

    >>> budget_words(1_000_000_000, 170_000_000)
    '1 GB; the smallest that works is 170 MB'
    >>> budget_words(1_000_000_000, 160_000_000, is_measured=False)
    '1 GB; the smallest that works is about 160 MB by the starting table, without models'
    """
    smallest = format_size(smallest_bytes)
    shown = smallest if is_measured else f"about {smallest} by the starting table, without models"
    return f"{format_size(budget_bytes)}; the smallest that works is {shown}"


def free_words(n_bytes: int | None) -> str:
    return f"; {format_size(n_bytes)} free" if n_bytes is not None else ""
