"""Gopher's rules (Rae et al. 2021, "Scaling Language Models: Methods, Analysis & Insights from Training Gopher", A1.1).

The paper leaves details open. These follow datatrove's reading, with words split at whitespace instead of by a
tokenizer; docs/reference/filters.md lists the differences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tamis._dataclasses import dataclass
from tamis.errors import UsageError
from tamis.stages.text.filters.doc_filter import DocumentFilter, is_number
from tamis.stages.text.filters.rule_set import RuleSet, rule


@dataclass(repr=False)
class GopherQuality(RuleSet):
    """Number and length of words, symbols, bullets, ellipses, letters and stop words.

    A limit of None leaves a rule out.
    """

    min_doc_words: int | None = 50
    max_doc_words: int | None = 100000
    min_avg_word_length: float | None = 3
    max_avg_word_length: float | None = 10
    max_symbol_word_ratio: float | None = 0.1
    max_bullet_lines_ratio: float | None = 0.9
    max_ellipsis_lines_ratio: float | None = 0.3
    # The name is datatrove's; it is the smallest share of words with a letter.
    max_non_alpha_words_ratio: float | None = 0.8
    min_stop_words: int | None = 2
    text_field: str = "text"
    name: str = "gopher_quality"
    sets: ClassVar[tuple[str, ...]] = ("gopher", "gopher-quality")

    def filters(self) -> list[DocumentFilter]:
        words = "non_symbol_words"
        return [
            *self.rule("gopher_short_doc", words, low="min_doc_words"),
            *self.rule("gopher_long_doc", words, high="max_doc_words"),
            *self.rule("gopher_below_avg_threshold", "non_symbol_word_chars", words, low="min_avg_word_length"),
            *self.rule("gopher_above_avg_threshold", "non_symbol_word_chars", words, high="max_avg_word_length"),
            *self.rule("gopher_too_many_hashes", "hash_chars", "words", high="max_symbol_word_ratio"),
            *self.rule("gopher_too_many_ellipsis", "ellipses", "words", high="max_symbol_word_ratio"),
            *self.rule("gopher_too_many_bullets", "gopher_bullet_lines", "split_lines", high="max_bullet_lines_ratio"),
            *self.rule(
                "gopher_too_many_end_ellipsis",
                "gopher_ellipsis_lines",
                "split_lines",
                high="max_ellipsis_lines_ratio",
            ),
            *self.rule("gopher_below_alpha_threshold", "words_with_alpha", "words", low="max_non_alpha_words_ratio"),
            *self.rule("gopher_enough_stop_words", "distinct_common_words", low="min_stop_words"),
        ]


@dataclass(repr=False)
class GopherRepetition(RuleSet):
    """Repeated lines, paragraphs and n-grams.

    `top_n_grams`, `dup_n_grams`: pairs of n and the largest share of characters.

    An empty text is dropped. A limit of None leaves a rule out.
    """

    dup_line_frac: float | None = 0.3
    dup_para_frac: float | None = 0.3
    dup_line_char_frac: float | None = 0.2
    dup_para_char_frac: float | None = 0.2
    top_n_grams: Sequence[Sequence[float]] = ((2, 0.2), (3, 0.18), (4, 0.16))
    dup_n_grams: Sequence[Sequence[float]] = ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10))
    text_field: str = "text"
    name: str = "gopher_repetition"
    sets: ClassVar[tuple[str, ...]] = ("gopher", "gopher-repetition")

    def filters(self) -> list[DocumentFilter]:
        paragraphs, lines = "gopher_duplicate_paragraph", "duplicate_line_run"
        rules = [
            *rule("empty", "chars", low=1),
            *self.rule("dup_para_frac", f"{paragraphs}s", "gopher_paragraphs", high="dup_para_frac"),
            *self.rule("dup_para_char_frac", f"{paragraphs}_chars", "chars", high="dup_para_char_frac"),
            *self.rule("dup_line_frac", f"{lines}s", "line_runs", high="dup_line_frac"),
            *self.rule("dup_line_char_frac", f"{lines}_chars", "chars", high="dup_line_char_frac"),
        ]
        for n, limit in _grams("top_n_grams", self.top_n_grams):
            gram_rules = rule(f"top_{n}_gram", f"gopher_top_{n}_gram_fraction", high=limit)
            rules += [one.set_by(maximum=_pairs_text("top_n_grams", self.top_n_grams, n)) for one in gram_rules]
        for n, limit in _grams("dup_n_grams", self.dup_n_grams):
            gram_rules = rule(f"duplicated_{n}_n_grams", f"gopher_duplicate_{n}_gram_fraction", high=limit)
            rules += [one.set_by(maximum=_pairs_text("dup_n_grams", self.dup_n_grams, n)) for one in gram_rules]
        return rules


def _pairs_text(parameter: str, pairs: Sequence[Sequence[float]], changed: int) -> str:
    """Return how a recipe sets the limit of one n, which needs all pairs.

    >>> _pairs_text("top_n_grams", ((2, 0.2), (3, 0.18)), 3)
    'top_n_grams: [[2, 0.2], [3, {}]]'
    """
    texts = (f"[{n}, {'{}' if n == changed else limit}]" for n, limit in pairs)
    return f"{parameter}: [{', '.join(texts)}]"


def _grams(parameter: str, pairs: Sequence[Sequence[float]]) -> list[tuple[int, float]]:
    """Return the pairs with n as an int; raise UsageError for an n that the kernels do not count."""
    try:
        limits = [(n, limit) for n, limit in pairs]
    except (TypeError, ValueError):
        raise UsageError(f"GopherRepetition: {parameter} must be pairs of n and a limit, got {pairs!r}") from None
    for n, _ in limits:
        if not is_number(n) or not 2 <= n <= 10 or n != int(n):
            raise UsageError(f"GopherRepetition: {parameter}: n must be a whole number from 2 to 10, got {n!r}")
    return [(int(n), limit) for n, limit in limits]
