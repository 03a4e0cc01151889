"""The heuristic sets of the original's recipes: 28 filters for English, 25 for other languages that separate words by spaces."""

from __future__ import annotations

from dataclasses import dataclass

from tamis.stages.text.filters.base import DocumentFilter
from tamis.stages.text.filters.heuristic import (
    BoilerPlateStringFilter,
    BulletsFilter,
    CommonEnglishWordsFilter,
    EllipsisFilter,
    LongWordFilter,
    MeanWordLengthFilter,
    NonAlphaNumericFilter,
    NumbersFilter,
    ParenthesesFilter,
    PunctuationFilter,
    RepeatedLinesByCharFilter,
    RepeatedLinesFilter,
    RepeatedParagraphsByCharFilter,
    RepeatedParagraphsFilter,
    RepeatingDuplicateNGramsFilter,
    RepeatingTopNGramsFilter,
    SymbolsToWordsFilter,
    UrlsFilter,
    WhiteSpaceFilter,
    WordCountFilter,
    WordsWithoutAlphabetsFilter,
)
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
            NonAlphaNumericFilter(0.25),
            *_before_words(),
            WordsWithoutAlphabetsFilter(0.8),
            CommonEnglishWordsFilter(2, stop_at_false=True),
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
        SymbolsToWordsFilter(0.1),
        NumbersFilter(0.15),
        UrlsFilter(0.2),
        WhiteSpaceFilter(0.25),
        ParenthesesFilter(0.1),
        BoilerPlateStringFilter(True, 0.4),
        RepeatedLinesFilter(0.7),
        RepeatedParagraphsFilter(0.7),
        RepeatedLinesByCharFilter(0.8),
        RepeatedParagraphsByCharFilter(0.8),
        WordCountFilter(50, 100000),
        PunctuationFilter(0.85),
    ]


def _after_words() -> list[DocumentFilter]:
    return [
        MeanWordLengthFilter(3, 10),
        LongWordFilter(1000),
        EllipsisFilter(0.3),
        *(RepeatingTopNGramsFilter(n, limit) for n, limit in _TOP),
        *(RepeatingDuplicateNGramsFilter(n, limit) for n, limit in _DUPLICATE),
        BulletsFilter(0.9),
    ]
