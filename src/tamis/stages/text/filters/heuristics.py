"""The heuristic sets of the original's recipes: 28 filters for English, 25 for other languages that separate words by spaces."""

from __future__ import annotations

from dataclasses import dataclass

from tamis.stages.text.filters.base import DocumentFilter
from tamis.stages.text.filters.heuristic import repetition, string
from tamis.stages.text.filters.rule_set import RuleSet

_TOP = ((2, 0.2), (3, 0.18), (4, 0.16))
_DUPLICATE = ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10))


@dataclass(repr=False)
class HeuristicEnglish(RuleSet):
    """The 28 filters of the original's English recipe, in its order."""

    text_field: str = "text"
    name: str = "heuristic_english"

    def filters(self) -> list[DocumentFilter]:
        return [
            string.NonAlphaNumericFilter(0.25),
            *_before_words(),
            string.WordsWithoutAlphabetsFilter(0.8),
            string.CommonEnglishWordsFilter(2, stop_at_false=True),
            *_after_words(),
        ]


@dataclass(repr=False)
class HeuristicNonEnglish(RuleSet):
    """The same without the three filters that know English letters and words."""

    text_field: str = "text"
    name: str = "heuristic_non_english"

    def filters(self) -> list[DocumentFilter]:
        return [*_before_words(), *_after_words()]


def _before_words() -> list[DocumentFilter]:
    return [
        string.SymbolsToWordsFilter(0.1),
        string.NumbersFilter(0.15),
        string.UrlsFilter(0.2),
        string.WhiteSpaceFilter(0.25),
        string.ParenthesesFilter(0.1),
        string.BoilerPlateStringFilter(True, 0.4),
        repetition.RepeatedLinesFilter(0.7),
        repetition.RepeatedParagraphsFilter(0.7),
        repetition.RepeatedLinesByCharFilter(0.8),
        repetition.RepeatedParagraphsByCharFilter(0.8),
        string.WordCountFilter(50, 100000),
        string.PunctuationFilter(0.85),
    ]


def _after_words() -> list[DocumentFilter]:
    return [
        string.MeanWordLengthFilter(3, 10),
        string.LongWordFilter(1000),
        string.EllipsisFilter(0.3),
        *(repetition.RepeatingTopNGramsFilter(n, limit) for n, limit in _TOP),
        *(repetition.RepeatingDuplicateNGramsFilter(n, limit) for n, limit in _DUPLICATE),
        string.BulletsFilter(0.9),
    ]
