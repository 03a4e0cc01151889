"""Where the extractors of pages count as the original counts: stop words as they are written, repetitions dropped."""

from __future__ import annotations

import pytest

from tamis.stages.text.download.html_extractors.base import dense_paragraphs
from tamis.stages.text.download.html_extractors.trafilatura import TrafilaturaExtractor

WORDS = frozenset({"this", "it", "is", "the"})


@pytest.mark.parametrize(
    ("line", "share"),
    [("This is it", 2 / 3), ("This IS it.", 0.0), ("the cat (the other)", 1 / 4)],
)
def test_stop_words_are_counted_as_they_are_written(line: str, share: float) -> None:
    assert dense_paragraphs(line, WORDS, share, "ENGLISH") == [line]
    assert dense_paragraphs(line, WORDS, share + 0.01, "ENGLISH") == []
    assert dense_paragraphs(line, WORDS, 1.0, "THAI") == [line]


def test_repetitions_of_a_page_are_dropped_unless_refused() -> None:
    assert TrafilaturaExtractor().extract_kwargs == {"deduplicate": True}
    assert TrafilaturaExtractor(deduplicate=False, include_tables=True).extract_kwargs == {
        "deduplicate": False,
        "include_tables": True,
    }
