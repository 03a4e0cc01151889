"""FineWeb's own rules: "The FineWeb Datasets" (Penedo et al., 2024), section 3.6."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tamis._lazy import np
from tamis.stages.text.filters.base import DocumentFilter, StatisticsFilter, quotient
from tamis.stages.text.filters.gopher import rule
from tamis.stages.text.filters.rule_set import RuleSet

if TYPE_CHECKING:
    from tamis.stages.text.filters.base import Stats


@dataclass
class DuplicateLineCharsFilter(StatisticsFilter):
    """Characters in lines that occurred before, as a share of all characters that are no line feeds."""

    char_duplicates_ratio: float = 0.01
    _name = "char_dup_ratio"
    compares = ("duplicate_sentence_chars", "chars", "newlines")
    at_most = "char_duplicates_ratio"

    def score_from(self, stats: Stats) -> np.ndarray[Any, Any]:
        in_lines = stats["chars"] - stats["newlines"]
        same = stats["duplicate_sentence_chars"]
        return quotient({"same": same, "in_lines": in_lines}, ("same", "in_lines"), 0.0)


@dataclass(repr=False)
class FineWebQuality(RuleSet):
    """Lines without final punctuation, short lines, repeated lines, lists. A limit of None leaves a rule out."""

    line_punct_thr: float | None = 0.12
    short_line_thr: float | None = 0.67
    char_duplicates_ratio: float | None = 0.01
    new_line_ratio: float | None = 0.3
    text_field: str = "text"
    name: str = "fineweb_quality"

    def filters(self) -> list[DocumentFilter]:
        by_chars = self.char_duplicates_ratio
        return [
            *rule("empty", "sentences", low=1),
            *rule("line_punct_ratio", "terminal_sentences", "sentences", low=self.line_punct_thr),
            *rule("short_line_ratio", "short_sentences", "sentences", high=self.short_line_thr),
            *([DuplicateLineCharsFilter(by_chars)] if by_chars is not None else []),
            *rule("list_ratio", "newlines", "words", high=self.new_line_ratio),
        ]
