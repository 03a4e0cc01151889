"""Filters for repetition inside one document: lines, paragraphs, n-grams of words.

The first four parameters are named "max" as in NeMo Curator, but are the smallest share of *different* lines (or
paragraphs, or their characters) that a document must have.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tamis import _deep_paths
from tamis.errors import UsageError
from tamis.stages.text.filters.doc_filter import KernelFilter
from tamis.stages.text.filters.words import WordsFilter, is_segmented

_COMPILED_N = range(2, 11)  # counted by kernels, others in Python


@dataclass
class RepeatedLinesFilter(KernelFilter):
    """Different lines, as a share of all lines."""

    max_repeated_line_fraction: float = 0.7
    _name = "repeated_lines"
    compares = ("unique_sentences", "sentences")
    when_nothing = 0.0
    at_least = "max_repeated_line_fraction"


@dataclass
class RepeatedParagraphsFilter(KernelFilter):
    """Different paragraphs, as a share of all paragraphs. An empty text is one paragraph."""

    max_repeated_paragraphs_ratio: float = 0.7
    _name = "repeated_paragraphs"
    compares = ("unique_paragraphs", "paragraphs")
    when_nothing = 0.0
    at_least = "max_repeated_paragraphs_ratio"


@dataclass
class RepeatedLinesByCharFilter(KernelFilter):
    """Characters of the different lines, as a share of those of all lines."""

    max_repeated_lines_char_ratio: float = 0.8
    _name = "repeated_lines_char"
    compares = ("unique_sentence_chars", "sentence_chars")
    when_nothing = 0.0
    at_least = "max_repeated_lines_char_ratio"


@dataclass
class RepeatedParagraphsByCharFilter(KernelFilter):
    """Characters of the different paragraphs, as a share of those of all paragraphs."""

    max_repeated_paragraphs_char_ratio: float = 0.8
    _name = "repeated_paragraphs_char"
    compares = ("unique_paragraph_chars", "paragraph_chars")
    when_nothing = 0.0
    at_least = "max_repeated_paragraphs_char_ratio"


class _NGrams(WordsFilter):
    n: int
    statistic: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.n, bool) or not isinstance(self.n, int) or self.n < 1:
            raise UsageError(f"{type(self).__name__}: n must be a whole number of at least 1, got {self.n!r}")

    @property
    def statistics(self) -> tuple[str, ...]:
        if is_segmented(self.lang) or self.n not in _COMPILED_N:
            return ()
        return (self.statistic.format(self.n),)


@dataclass
class RepeatingTopNGramsFilter(_NGrams):
    """Share of characters that disappear if the most frequent n-gram (of several, the first) is removed from the text.

    Words of an n-gram are joined by one space. 1 for texts of fewer than n words.
    """

    n: int = 2
    max_repeating_ngram_ratio: float = 0.2
    lang: str = "en"
    statistic = "top_{}_gram_fraction"
    at_most = "max_repeating_ngram_ratio"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._name = f"repeating_top_{self.n}grams"

    def score_words(self, text: str, words: list[str]) -> float:
        if len(words) < self.n:
            return 1.0
        grams = Counter(zip(*(words[i:] for i in range(self.n)), strict=False))
        gram = (" " if not is_segmented(self.lang) else "").join(grams.most_common(1)[0][0])
        return (len(text) - len(text.replace(gram, ""))) / len(text)


@dataclass
class RepeatingDuplicateNGramsFilter(_NGrams):
    """Share of characters in n-grams that occurred before in the text, overlaps counted once.

    1 for texts of fewer than n words.
    """

    n: int = 2
    max_repeating_duplicate_ngram_ratio: float = 0.2
    lang: str = "en"
    statistic = "duplicate_{}_gram_fraction"
    at_most = "max_repeating_duplicate_ngram_ratio"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._name = f"repeating_dup_{self.n}gram"

    def score_words(self, text: str, words: list[str]) -> float:
        if len(words) < self.n:
            return 1.0
        space = 0 if is_segmented(self.lang) else 1
        seen: set[tuple[str, ...]] = set()
        n_chars = n_covered = 0
        for gram in zip(*(words[i:] for i in range(self.n)), strict=False):
            if gram in seen:
                n_new = self.n - n_covered
                n_chars += sum(map(len, gram[n_covered:])) + space * min(n_new, self.n - 1)
                n_covered = self.n
            seen.add(gram)
            n_covered = max(n_covered - 1, 0)
        return n_chars / len(text)


_deep_paths.register(__name__, "repetition")
