"""What a rule counted in a text, for the examples of reports."""

from __future__ import annotations

from typing import Any

import pytest

from tamis.kernels.text.text_stats import STATISTICS
from tamis.stages.text.filters.evidence import _FINDERS, find_ranges
from tamis.stages.text.filters.gopher import GopherQuality, GopherRepetition
from tamis.stages.text.filters.heuristic.repetition import RepeatingTopNGramsFilter

TEXT = "Buy now! Buy now!\n- one\n- one\nSee https://x.org/a ...\nword ### 42\n"


def found(statistic: str, text: str = TEXT) -> list[str]:
    return [text[a:b] for a, b in find_ranges(statistic, text)]


@pytest.mark.parametrize(
    ("statistic", "expected"),
    [
        ("duplicate_sentences", ["- one"]),
        ("bullet_sentences", ["- one", "- one"]),
        ("ellipsis_sentences", ["See https://x.org/a ..."]),
        ("sentences_without_end_mark", ["- one", "- one", "word ### 42"]),
        ("url_chars", ["https://x.org/a"]),
        ("digits", ["42"]),
        ("hash_chars", ["###"]),
        ("words_with_alpha", ["-", "-", "...", "###", "42"]),
        ("top_2_gram_fraction", ["Buy now!", "Buy now!"]),
        ("gopher_duplicate_2_gram_fraction", ["Buy now!", "- one"]),
        ("longest_word", ["https://x.org/a"]),
        ("chars", []),
        ("no such statistic", []),
    ],
)
def test_ranges(statistic: str, expected: list[str]) -> None:
    assert found(statistic) == expected


def test_every_statistic_with_a_finder_exists() -> None:
    assert set(_FINDERS) <= set(STATISTICS)


@pytest.mark.parametrize("statistic", [*_FINDERS, "top_3_gram_fraction", "duplicate_5_gram_fraction"])
def test_ranges_are_inside_in_order_and_few(statistic: str) -> None:
    for text in ("", "\n\n", "a" * 100_000, "1 " * 50_000, "{}() #\n" * 20_000, "\u202e\ud83d\ude00 é\n" * 2000):
        ranges = find_ranges(statistic, text)
        assert len(ranges) <= 60
        assert ranges == sorted(ranges)
        assert all(0 <= a < b <= len(text) for a, b in ranges)


def test_a_stage_finds_what_its_rule_counted() -> None:
    (quality,), (repetition,) = GopherQuality().decompose(), GopherRepetition().decompose()
    assert quality.find_evidence("gopher_too_many_hashes", "a # b") == [(2, 3)]
    assert repetition.find_evidence("dup_line_frac", "x\nx\n") == [(2, 3)]
    assert quality.find_evidence("no such rule", "a # b") == []
    one: Any = RepeatingTopNGramsFilter(n=2)
    assert one.find_evidence("a b a b") == [(0, 3), (4, 7)]
