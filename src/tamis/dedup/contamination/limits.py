"""Limits that decide whether a document is contaminated, as plain values for the process that drives the passes."""

from __future__ import annotations

from tamis._dataclasses import dataclass

DROP, CUT, REPORT = "drop", "cut", "report"
ACTIONS = {
    DROP: "leave out contaminated documents",
    CUT: "cut what they share with evaluation items out of them",
    REPORT: "change nothing, and list them",
}


LEAST_COMMON = 100
"""A share of the documents is at least so many: in a small corpus nothing is common."""


@dataclass(frozen=True)
class Common:
    """N-grams in more documents than this number (or share) are common and do not count; neither: all count."""

    n_documents: int | None = None
    share: float | None = None

    def limit(self, n_documents: int) -> int:
        """Return how many documents may hold an n-gram, in a corpus of so many.

        >>> Common(share=0.0001).limit(1_000), Common(share=0.0001).limit(10_000_000), Common(25).limit(1_000)
        (100, 1000, 25)
        """
        if self.n_documents is not None:
            return self.n_documents
        return n_documents if self.share is None else max(LEAST_COMMON, int(self.share * n_documents))


@dataclass(frozen=True)
class Limits:
    """`min_words`: least length of the longest run; `min_share`: least share of the n-grams of the item."""

    min_words: int = 13
    min_share: float = 0.0
