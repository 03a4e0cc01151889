"""docs/reference/filters.md is what the filters say."""

from __future__ import annotations

from pathlib import Path

from tamis.stages.text.filters.reference import reference

ROOT = Path(__file__).parents[4]


def test_the_page_is_up_to_date() -> None:
    assert (ROOT / "docs/reference/filters.md").read_text(encoding="utf-8") == reference(), (
        "run: python -m tamis.stages.text.filters.reference > docs/reference/filters.md"
    )


def test_it_says_what_becomes_of_empty_texts() -> None:
    page = reference()
    assert "| NumbersFilter | 1: dropped | 0: kept |" in page
    assert "| LongWordFilter | 0: kept | 0: kept |" in page
    assert "| `c4` | `c4.C4Quality` | lorem_ipsum <= 0, curly_bracket <= 0, too_few_sentences >= 5 |" in page
