"""Safety checks of a deduplication: warnings about its summary, and a limit on what a source may lose."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tamis._dataclasses import dataclass
from tamis.errors import Incomplete

if TYPE_CHECKING:
    from tamis.dedup.state import Summary

LARGE_COMPONENT = 1000  # documents, and LARGE_SHARE of all
LARGE_SHARE = 0.01
MOST_GO = 0.9


def alarms(summary: Summary, counted: str = "documents") -> list[str]:
    """Return warnings about a suspicious summary; they stop nothing.

    `counted`: what duplicates are (documents; bytes; lines or paragraphs, of which those long enough to count are all
    there are).

    >>> alarms({"n_documents": 100, "n_duplicates": 95})
    ['95% of all documents are duplicates: is one source in the input twice?']
    >>> alarms({"n_documents": 3, "n_duplicates": 95, "n_units": 200, "n_long_enough": 100}, "lines")
    ['95% of all lines are duplicates: is one source in the input twice?']
    """
    n = max(1, int(summary["n_documents"]))
    total = {"documents": "n_documents", "bytes": "n_text_bytes"}.get(counted, "n_long_enough")
    n_counted = max(1, int(summary[total]))  # type: ignore[literal-required]
    warnings = []
    component = int(summary.get("largest_component", 0))
    if component > LARGE_COMPONENT and component > LARGE_SHARE * n:
        warnings.append(
            f"{component:,} documents ({component / n:.1%}) hang together by shared bands: boilerplate, or shingles "
            "that are too short; verification keeps apart what is not alike, but look at the duplicates, or raise "
            "--char-ngrams"
        )
    if summary.get("n_heavy_buckets"):
        warnings.append(
            f"{summary['n_heavy_buckets']:,} band keys are shared by more than 100,000 documents (the largest by "
            f"{summary['largest_bucket']:,}): mostly the same text, such as a licence or a template"
        )
    if summary.get("n_beyond_leaders"):
        warnings.append(
            f"{summary['n_beyond_leaders']:,} documents were not compared with all that stay in their component and "
            "were kept"
        )
    if summary.get("n_not_compared"):
        warnings.append(
            f"{summary['n_not_compared']:,} documents could not be compared (a stage failed on them) and were kept"
        )
    if summary.get("n_by_shared_ids"):
        warnings.append(by_shared_ids(summary))
    if summary.get("n_without_number", 0) >= n:
        warnings.append("no document has a number in the field of --keep-by: is that its name? It decided nothing")
    if int(summary["n_duplicates"]) > MOST_GO * n_counted:
        share = int(summary["n_duplicates"]) / n_counted
        warnings.append(
            f"{share:.0%} of all documents are contaminated: is an evaluation set in the input, or boilerplate in one?"
            if "sets" in summary
            else f"{share:.0%} of all {counted} are duplicates: is one source in the input twice?"
        )
    return warnings


def by_shared_ids(summary: Summary) -> str:
    """Return the message for a removal that took more documents than there are ids listed."""
    return (
        f"{summary['n_by_shared_ids']:,} more documents were removed than ids are listed: an id that several "
        "documents have takes them all, those that were to stay, too; ids must be unique, or be those by file and "
        "place"
    )


# -- sources -----------------------------------------------------------------------------------------------------------
MIN_SOURCE_DOCUMENTS = 100  # a handful of documents says nothing about a source


@dataclass(frozen=True)
class LossLimit:
    """The largest share of a source that may be removed.

    `counted`: what the share is of; `step`: of a curation, in messages.
    """

    share: float
    counted: str = "documents"
    step: str = ""

    def check(self, paths: Sequence[str], summary: Summary, duplicates: str) -> None:
        """Raise Incomplete if a source would lose more. `duplicates`: the tables that show what."""
        if self.share >= 1.0:
            return
        totals: dict[str, list[int]] = {}
        by_file = summary["documents_by_file"], summary["duplicates_by_file"]
        for source, n, n_removed in zip(sources_of(paths), *by_file, strict=True):
            entry = totals.setdefault(source, [0, 0])
            entry[0] += n
            entry[1] += n_removed
        lost = {s: g / n for s, (n, g) in totals.items() if n >= MIN_SOURCE_DOCUMENTS and g / n > self.share}
        if not lost:
            return
        worst = max(lost, key=lambda s: lost[s])
        remedy = (
            f"with `max_source_loss: 1` in step {self.step} of the recipe (a preset: tamis recipe show NAME > "
            "mine.yaml, then --preset ./mine.yaml)"
            if self.step
            else "with max_source_loss=1 (--max-source-loss 100%)"
        )
        raise Incomplete(
            f"{self.step and f'{self.step}: '}nothing was removed: {len(lost)} of {len(totals)} sources would lose "
            f"more than {self.share:.0%} of their {self.counted} ({worst}: {lost[worst]:.1%} of "
            f"{totals[worst][0]:,}). Look at {duplicates}; if that is right, run the same {remedy}: it resumes from "
            "here"
        )


def sources_of(paths: Sequence[str]) -> list[str]:
    """Return the source of each file: its folder, or the file itself if it is in the one that holds all others.

    >>> sources_of(["s3://b/in/1.jsonl", "s3://b/in/2.jsonl"])
    ['s3://b/in/1.jsonl', 's3://b/in/2.jsonl']
    >>> sources_of(["in/web/1.jsonl", "in/web/2.jsonl", "in/books/1.jsonl", "in/3.jsonl"])
    ['in/web', 'in/web', 'in/books', 'in/3.jsonl']
    """
    folders = [os.path.dirname(path) for path in paths]
    # As they are in a bucket, two slashes would become one.
    comparable = {folder: folder.replace("://", ":/") for folder in set(folders)}
    common = os.path.commonpath(list(comparable.values())) if comparable else ""
    return [path if comparable[f] == common else f for path, f in zip(paths, folders, strict=True)]
