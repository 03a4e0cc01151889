"""How long the input takes, and how much of it is given out at once. Pure.

A unit that is killed is done again, and at the end all wait for the last one. So a unit should take an eighth of the time that the
run has taken so far, two minutes at most, and a tenth of the timeout. A partition goes through all segments: the slowest one counts.
"""

from __future__ import annotations

_LONGEST_S = 120.0
_SHORT_S = 5.0  # shorter ones are not worth the trouble
_PART = 8  # of the time so far
_UNTRIED_BYTES = 4 << 20  # of a unit, while nobody knows how long one takes
_FIRST_BYTES = 1 << 20  # of a unit, however slow earlier runs were: what they took may have been setting up
_LEAST_BYTES = 1 << 16
_KEPT = 0.8  # of what is known, when the next unit tells


class Pace:
    """`expected_s`: for a byte of the input, by earlier runs; 0: not known."""

    def __init__(self, n_segments: int, timeout_s: float, expected_s: float = 0.0) -> None:
        self._longest_s, self._expected_s = min(_LONGEST_S, timeout_s / 10), expected_s
        self._rates = [0.0] * n_segments  # seconds for a byte of the input, in each segment
        self._began_s: float | None = None

    def learn(self, segment: int, input_bytes: int, seconds: float) -> None:
        """Record how long a unit took for what came of `input_bytes` of the input."""
        if input_bytes > 0:
            rate, old = max(seconds, 1e-6) / input_bytes, self._rates[segment]
            self._rates[segment] = _KEPT * old + (1 - _KEPT) * rate if old else rate

    def knows(self, segment: int) -> bool:
        """Return True if a unit of this segment is done."""
        return self._rates[segment] > 0

    def bound(self, size: int, now_s: float, is_tried: bool) -> int:
        """`size`, or less where that would take too long. `is_tried`: every segment that has something to do has told."""
        self._began_s = now_s if self._began_s is None else self._began_s
        longest_s = min(self._longest_s, max(_SHORT_S, (now_s - self._began_s) / _PART))
        if is_tried:
            return min(size, max(_LEAST_BYTES, int(longest_s / max(self._rates))))
        if self._expected_s:
            return min(size, max(_FIRST_BYTES, int(longest_s / max(self._expected_s, *self._rates))))
        return min(size, _UNTRIED_BYTES)
