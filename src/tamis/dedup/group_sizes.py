"""How many groups there are of each size, for reports."""

from __future__ import annotations

from typing import Any

LARGE = 1 << 20  # groups above this size are counted as if they had it


def histogram(by_size: Any) -> dict[str, int]:
    """Count the groups that have 2, 3-4, 5-8, ... members; `by_size[n]` groups have n.

    >>> histogram([0, 0, 3, 1, 2, 0, 1])
    {'2': 3, '3-4': 3, '5-8': 1}
    """
    found: dict[str, int] = {}
    low = high = 2
    while low < len(by_size):
        found[str(low) if low == high else f"{low}-{high}"] = int(sum(by_size[low : high + 1]))
        low, high = high + 1, high * 2
    return found
