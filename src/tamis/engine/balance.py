"""How many workers each segment gets. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def share_workers(n_slots: int, work_s: Sequence[float], fixed: Sequence[int | None]) -> list[int]:
    """Workers per segment: proportional to the measured work per input byte, at least one each, fixed numbers kept.

    >>> share_workers(8, [1.0, 3.0], [None, None])
    [2, 6]
    >>> share_workers(2, [1.0, 1.0, 1.0], [None, None, None])
    [1, 1, 1]
    >>> share_workers(4, [0.0, 0.0], [None, 2])
    [2, 2]
    """
    counts = [f if f is not None else 1 for f in fixed]
    free = [i for i, f in enumerate(fixed) if f is None]
    total = sum(work_s[i] for i in free)
    for _ in range(n_slots - sum(counts)):
        if not free:
            break
        # the segment that is furthest below its share
        best = max(free, key=lambda i: ((work_s[i] / total if total > 0 else 1.0) / counts[i], -i))
        counts[best] += 1
    return counts
