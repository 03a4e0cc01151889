"""How many workers each segment gets. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def share_workers(
    n_cpus: float, work_s: Sequence[float], fixed: Sequence[int | None], cpus: Sequence[float] | None = None
) -> list[int]:
    """Workers per segment: proportional to the measured work per input byte, at least one each, fixed numbers kept.

    `cpus` is what one worker of each segment asks for (one each by default); together they ask for at most `n_cpus`, beyond
    the one that every segment needs to get anywhere.

    >>> share_workers(8, [1.0, 3.0], [None, None])
    [2, 6]
    >>> share_workers(2, [1.0, 1.0, 1.0], [None, None, None])
    [1, 1, 1]
    >>> share_workers(4, [0.0, 0.0], [None, 2])
    [2, 2]
    >>> share_workers(4, [1.0], [None], cpus=[2.0])
    [2]
    """
    cpus = [max(c, 0.1) for c in cpus] if cpus is not None else [1.0] * len(work_s)
    counts = [f if f is not None else 1 for f in fixed]
    total = sum(w for w, f in zip(work_s, fixed, strict=True) if f is None)
    while True:
        left = n_cpus - sum(n * c for n, c in zip(counts, cpus, strict=True))
        free = [i for i, f in enumerate(fixed) if f is None and cpus[i] <= left + 1e-9]
        if not free:
            return counts
        # the segment that is furthest below its share
        best = max(free, key=lambda i: ((work_s[i] / total if total > 0 else 1.0) / counts[i], -i))
        counts[best] += 1
