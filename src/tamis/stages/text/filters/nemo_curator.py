"""The rule sets of NeMo Curator's heuristic recipes: 28 filters for English, 25 for other languages.

The other languages are those that separate words by spaces. The filters are in `heuristic/`; here are their order and
limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tamis.stages.text.filters.doc_filter import DocumentFilter
from tamis.stages.text.filters.heuristic import repetition, string
from tamis.stages.text.filters.rule_set import RuleSet

_TOP_N_GRAMS = ((2, 0.2), (3, 0.18), (4, 0.16))
_DUPLICATE_N_GRAMS = ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10))


@dataclass(repr=False)
class HeuristicEnglish(RuleSet):
    """The 28 filters of the English recipe, in its order."""

    text_field: str = "text"
    name: str = "heuristic_english"
    sets: ClassVar[tuple[str, ...]] = ("heuristic-english",)

    def filters(self) -> list[DocumentFilter]:
        return [
            string.NonAlphaNumericFilter(0.25),
            *_characters_and_lines(),
            string.WordsWithoutAlphabetsFilter(0.8),
            string.CommonEnglishWordsFilter(2, stop_at_false=True),
            *_words_and_repetition(),
        ]


@dataclass(repr=False)
class HeuristicNonEnglish(RuleSet):
    """The English recipe without the three filters that know English letters and words."""

    text_field: str = "text"
    name: str = "heuristic_non_english"
    sets: ClassVar[tuple[str, ...]] = ("heuristic-non-english",)

    def filters(self) -> list[DocumentFilter]:
        return [*_characters_and_lines(), *_words_and_repetition()]


def _characters_and_lines() -> list[DocumentFilter]:
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


def _words_and_repetition() -> list[DocumentFilter]:
    return [
        string.MeanWordLengthFilter(3, 10),
        string.LongWordFilter(1000),
        string.EllipsisFilter(0.3),
        *(repetition.RepeatingTopNGramsFilter(n, limit) for n, limit in _TOP_N_GRAMS),
        *(repetition.RepeatingDuplicateNGramsFilter(n, limit) for n, limit in _DUPLICATE_N_GRAMS),
        string.BulletsFilter(0.9),
    ]
