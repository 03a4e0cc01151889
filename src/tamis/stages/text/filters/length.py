"""LengthFilter: documents by their number of characters."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tamis.stages.text.filters.base import StatisticsFilter


@dataclass
class LengthFilter(StatisticsFilter):
    """Number of characters, within bounds."""

    min_length: float = 0
    max_length: float = math.inf
    _name = "length"
    compares = ("chars",)
    at_least = "min_length"
    at_most = "max_length"
