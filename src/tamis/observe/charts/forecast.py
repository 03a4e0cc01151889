"""How long until memory reaches the budget, if it goes on as in the last minutes. Says nothing where there is no clear trend."""

from __future__ import annotations

from collections.abc import Sequence

WINDOW_S = 120.0
MIN_POINTS = 8
_MAX_POINTS = 60  # pairs of them are compared: 1,770
_MIN_RISE = 0.01  # of the budget over the window; less is noise
_MIN_AGREEMENT = 0.5  # pairs that rise less pairs that fall, as a share of all (Kendall's tau)
_MAX_S = 7 * 86400.0


def seconds_to_limit(points: Sequence[tuple[float, float]], budget_bytes: float) -> float | None:
    """`points`: (seconds, bytes), oldest first. None: no clear rise, or too far away to say.

    The slope is the median of the slopes between all pairs (Theil-Sen): a single partition more or less does not move it.

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
