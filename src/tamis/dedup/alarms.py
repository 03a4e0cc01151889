"""What a deduplication should make its user look twice at. Sentences, from the summary; nothing is stopped by these."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tamis.dedup.state import Summary

LARGE_COMPONENT = 1000  # documents, and LARGE_SHARE of all
LARGE_SHARE = 0.01
MOST_GO = 0.9


def alarms(summary: Summary, counted: str = "documents") -> list[str]:
    """`counted`: what duplicates are (documents; lines or paragraphs, of which those long enough to count are all there are).

    >>> alarms({"n_documents": 100, "n_duplicates": 95})
    ['95% of all documents are duplicates: is one source in the input twice?']
    >>> alarms({"n_documents": 3, "n_duplicates": 95, "n_units": 200, "n_long_enough": 100}, "lines")
    ['95% of all lines are duplicates: is one source in the input twice?']
    """
    n = max(1, int(summary["n_documents"]))
    n_counted = n if counted == "documents" else max(1, int(summary["n_long_enough"]))
    found = []
    component = int(summary.get("largest_component", 0))
    if component > LARGE_COMPONENT and component > LARGE_SHARE * n:
        found.append(
            f"{component:,} documents ({component / n:.1%}) hang together by shared bands: boilerplate, or shingles that are too "
            "short; verification keeps apart what is not alike, but look at the duplicates, or raise --char-ngrams"
        )
    if summary.get("n_heavy_buckets"):
        found.append(
            f"{summary['n_heavy_buckets']:,} band keys are shared by more than 100,000 documents (the largest by "
            f"{summary['largest_bucket']:,}): mostly the same text, such as a licence or a template"
        )
    if summary.get("n_beyond_leaders"):
        found.append(
            f"{summary['n_beyond_leaders']:,} documents were not compared with all that stay in their component and were kept"
        )
    if summary.get("n_not_compared"):
        found.append(
            f"{summary['n_not_compared']:,} documents could not be compared (a stage failed on them) and were kept"
        )
    if summary.get("n_by_shared_ids"):
        found.append(by_shared_ids(summary))
    if summary.get("n_without_number", 0) >= n:
        found.append("no document has a number in the field of --keep-by: is that its name? It decided nothing")
    if int(summary["n_duplicates"]) > MOST_GO * n_counted:
        share = int(summary["n_duplicates"]) / n_counted
        found.append(f"{share:.0%} of all {counted} are duplicates: is one source in the input twice?")
    return found


def by_shared_ids(summary: Summary) -> str:
    """Return the message for a removal that took more documents than there are ids listed."""
    return (
        f"{summary['n_by_shared_ids']:,} more documents were removed than ids are listed: an id that several documents have takes them all, those "
        "that were to stay, too; ids must be unique, or be those by file and place"
    )
