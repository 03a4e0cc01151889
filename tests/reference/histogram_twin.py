"""Histograms, slowly: the bin of one number by the text of its rule. The specification of engine/worker/binning.py."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any


def bin_of(value: Any) -> int:
    if isinstance(value, bool):
        value = int(value)
    if not isinstance(value, (int, float)) or value != value:
        return 346
    if -(2.0**-1027) < value < 0:
        return 0
    if value < 0:
        return -1 - bin_of(-value)
    if value < 2**-24:
        return 0
    if value >= 2**40:
        return 345
    if 1 / 16 <= value < 1:
        return 81 + math.floor(value * 64) - 4
    if 1 <= value < 16:
        return 141 + math.floor(value * 4) - 4
    power = math.floor(math.log2(value)) if value < 1 else int(value).bit_length() - 1
    while 2.0**power > value:  # math.log2 rounds
        power -= 1
    while 2.0 ** (power + 1) <= value:
        power += 1
    quarter = math.floor((value / 2.0**power - 1) * 4)
    return (1 + (power + 24) * 4 if value < 1 else 201 + (power - 4) * 4) + quarter


def histogram(values: list[Any]) -> dict[int, int]:
    return dict(Counter(map(bin_of, values)))
