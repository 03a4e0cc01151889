"""Whether a worker's floor rises: what it still holds after release(), partition after partition. Pure.

A rising floor eats the cap from below until every partition fails, so the worker is replaced before that. The slope is
Theil-Sen's (median of pairwise slopes): one partition that left a cache behind, or one drop, does not move it.
"""

from __future__ import annotations

from collections import deque
from statistics import median

N_IGNORED = 5  # imports, caches and arenas fill during the first partitions
MIN_POINTS = 30
MAX_POINTS = 200
MIN_GROWTH_BYTES = 4_000_000
_MAX_GROWTH_SHARE = 0.1  # of the cap: below it a worker loses less by staying
_MAX_PAIRED_POINTS = 60  # thinning 200 points to 50 keeps a check near 0.3 ms instead of 6


class FloorTrend:
    """The floor of one worker. Start a new one with every new worker."""

    def __init__(self) -> None:
        self._floors: deque[int] = deque(maxlen=MAX_POINTS)
        self._n_seen = 0

    def add(self, floor_bytes: int) -> None:
        """Note the resident anonymous bytes after the release that follows a partition."""
        self._n_seen += 1
        if self._n_seen > N_IGNORED:
            self._floors.append(floor_bytes)

    @property
    def slope_bytes(self) -> float:
        """Growth per partition; 0 while there are fewer than 30 points."""
        n = len(self._floors)
        if n < MIN_POINTS:
            return 0.0
        step = -(-n // _MAX_PAIRED_POINTS)
        points = list(enumerate(self._floors))[::step]
        return median((y2 - y1) / (x2 - x1) for i, (x1, y1) in enumerate(points) for x2, y2 in points[i + 1 :])

    @property
    def growth_bytes(self) -> float:
        """Growth over the points kept, by the slope."""
        return self.slope_bytes * (len(self._floors) - 1)

    def should_recycle(self, cap_bytes: int) -> bool:
        """Whether the floor has risen enough, and steadily enough, to replace a worker with this cap.

        Enough is 4 MB already, and a tenth of the cap by the end of another 200 partitions.
        """
        slope_bytes = self.slope_bytes
        growth_bytes = slope_bytes * (len(self._floors) - 1)
        return (
            growth_bytes >= MIN_GROWTH_BYTES
            and growth_bytes + slope_bytes * MAX_POINTS >= _MAX_GROWTH_SHARE * cap_bytes
        )
