"""The seat belt of a removal: no source of documents is lost to it unnoticed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from tamis.dedup.state import Summary
from tamis.errors import Incomplete

MIN_SOURCE_DOCUMENTS = 100  # a handful of documents says nothing about a source


@dataclass(frozen=True)
class LossLimit:
    """The largest share of a source that may be removed. `counted`: what the share is of; `step`: of a curation, in messages."""

    share: float
    counted: str = "documents"
    step: str = ""

    def check(self, paths: Sequence[str], summary: Summary, duplicates: str) -> None:
        """Raise Incomplete if a source would lose more. `duplicates`: the tables that show what."""
        if self.share >= 1.0:
            return
        totals: dict[str, list[int]] = {}
        counts = zip(paths, summary["documents_by_file"], summary["duplicates_by_file"], strict=True)
        for path, n, n_removed in counts:
            entry = totals.setdefault(source_of(path, paths), [0, 0])
            entry[0] += n
            entry[1] += n_removed
        lost = {s: g / n for s, (n, g) in totals.items() if n >= MIN_SOURCE_DOCUMENTS and g / n > self.share}
        if not lost:
            return
        worst = max(lost, key=lambda s: lost[s])
        remedy = (
            f"with `max_source_loss: 1` in step {self.step} of the recipe (a preset: tamis recipe show NAME > mine.yaml, then "
            "--preset ./mine.yaml)"
            if self.step
            else "with max_source_loss=1 (--max-source-loss 100%)"
        )
        raise Incomplete(
            f"{self.step and f'{self.step}: '}nothing was removed: {len(lost)} of {len(totals)} sources would lose more than "
            f"{self.share:.0%} of their {self.counted} ({worst}: {lost[worst]:.1%} of {totals[worst][0]:,}). Look at {duplicates}; if "
            f"that is right, run the same {remedy}: it goes on from here"
        )


def source_of(path: str, paths: Sequence[str]) -> str:
    """Return the source of a file: its folder, or the file itself if all files are in one folder.

    >>> source_of("s3://b/in/1.jsonl", ["s3://b/in/1.jsonl", "s3://b/in/2.jsonl"])
    's3://b/in/1.jsonl'
    """
    folder = os.path.dirname(path)
    # As they are in a bucket, two slashes would become one.
    common = os.path.commonpath([os.path.dirname(p).replace("://", ":/") for p in paths])
    return path if folder.replace("://", ":/") == common else folder
