"""The pauses between looks at the memory of a run: short while it moves or little is left, long while nothing changes.

A look costs a third of a millisecond. While the memory in use stands still, each pause is longer than the one before,
but never so long that the processes of a machine could take all that the budget leaves meanwhile. What may set them in
motion (a unit for a worker, a fork) ends a pause. Pure: the sampler (sampler.py) keeps the time.
"""

from __future__ import annotations

import os

SAMPLE_S, FAST_SAMPLE_S, STILL_S = 0.02, 0.01, 0.25
EXACT_S, RESTLESS_S, SPACIOUS_S = 0.5, 0.1, 1.0  # between two measurements of PSS, while processes touch memory
IDLE_S, SPACIOUS_IDLE_S = 5.0, 20.0  # ... while they do not: others may come and go that share pages of libraries
_LONGER = 1.5
_MOVED_SHARE = 0.01
_SPACIOUS_SHARE = 0.25  # of the budget is left: what is shared and copied, or not shared any more, is less
_GROWTH_BYTES_S = 3e9 * len(os.sched_getaffinity(0))  # a core touches 2.7 GB of new pages in a second


def has_moved(before_bytes: int, now_bytes: int) -> bool:
    """Return True if the memory in use has changed by so much that it is worth a decision: by 1 %."""
    return abs(now_bytes - before_bytes) > _MOVED_SHARE * before_bytes


class Pace:
    """`pause_s`: until the next look; `exact_s`, `idle_s`: between two measurements of PSS.

    `budget_bytes`: what the processes must stay below; None where nothing says so, and peaks are all that is asked for.
    `is_hurried`: something may grow that nothing else bounds.
    """

    def __init__(self) -> None:
        self.budget_bytes: int | None = None
        self.is_hurried = False
        self._used_bytes = self._settled_bytes = 0
        self._still_s = SAMPLE_S

    @property
    def pause_s(self) -> float:
        if self.is_hurried:
            return FAST_SAMPLE_S
        return max(SAMPLE_S, min(self._still_s, self._room_bytes / _GROWTH_BYTES_S))

    @property
    def exact_s(self) -> float:
        if self.is_hurried:
            return RESTLESS_S
        return SPACIOUS_S if self._is_spacious else EXACT_S

    @property
    def idle_s(self) -> float:
        return SPACIOUS_IDLE_S if self._is_spacious else IDLE_S

    @property
    def _is_spacious(self) -> bool:
        return self.budget_bytes is not None and self._room_bytes > _SPACIOUS_SHARE * self.budget_bytes

    @property
    def _room_bytes(self) -> int:
        return 0 if self.budget_bytes is None else self.budget_bytes - self._used_bytes

    def note(self, used_bytes: int) -> None:
        """Take in what a look has found."""
        self._used_bytes = used_bytes
        if has_moved(self._settled_bytes, used_bytes):
            self._settled_bytes, self._still_s = used_bytes, SAMPLE_S
        else:
            self._still_s = min(STILL_S, self._still_s * _LONGER)

    def expect_change(self) -> bool:
        """Expect movement: look often again. True if the pause under way is longer than it should be now."""
        was_longer = self.pause_s > SAMPLE_S
        self._still_s = SAMPLE_S
        return was_longer
