"""What an iterator or an extractor leaves out is counted by reason, so that the stage can report it."""

from __future__ import annotations

from collections import Counter


class Skips:
    """Mixed into iterators and extractors. Needs no __init__: user classes rarely call one."""

    def _skip(self, reason: str, n: int = 1) -> None:
        """Count records that are left out."""
        self.__dict__.setdefault("_skipped", Counter())[reason] += n

    def take_skipped(self) -> dict[str, int]:
        """Counts by reason since the last call."""
        return dict(self.__dict__.pop("_skipped", {}))
