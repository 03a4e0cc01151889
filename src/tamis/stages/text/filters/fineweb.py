"""FineWeb's custom rules (Penedo et al. 2024, "The FineWeb Datasets", section 3.6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tamis._lazy import np
from tamis.stages.text.filters.doc_filter import DocumentFilter, KernelFilter, quotient
from tamis.stages.text.filters.rule_set import RuleSet, rule

if TYPE_CHECKING:
    from tamis.stages.text.filters.doc_filter import Stats


@dataclass
class DuplicateLineCharsFilter(KernelFilter):
    """Characters in lines that occurred before, as a share of all characters other than line feeds."""

    char_duplicates_ratio: float = 0.01
    _name = "char_dup_ratio"
    compares = ("duplicate_sentence_chars", "chars", "newlines")
    at_most = "char_duplicates_ratio"

    def score_from(self, stats: Stats) -> np.ndarray[Any, Any]:
        all_chars = stats["chars"] - stats["newlines"]
        return quotient({"duplicate": stats["duplicate_sentence_chars"], "all": all_chars}, ("duplicate", "all"), 0.0)


@dataclass(repr=False)
class FineWebQuality(RuleSet):
    """Lines without final punctuation, short lines, repeated lines, lists. A limit of None leaves a rule out."""

    line_punct_thr: float | None = 0.12
    short_line_thr: float | None = 0.67
    char_duplicates_ratio: float | None = 0.01
    new_line_ratio: float | None = 0.3
    text_field: str = "text"
    name: str = "fineweb_quality"
    sets: ClassVar[tuple[str, ...]] = ("fineweb",)

    def filters(self) -> list[DocumentFilter]:
        duplicate_chars = self.char_duplicates_ratio
        return [
            *rule("empty", "sentences", low=1),
            *self.rule("line_punct_ratio", "terminal_sentences", "sentences", low="line_punct_thr"),
            *self.rule("short_line_ratio", "short_sentences", "sentences", high="short_line_thr"),
            *([] if duplicate_chars is None else [DuplicateLineCharsFilter(duplicate_chars)]),
            *self.rule("list_ratio", "newlines", "words", high="new_line_ratio"),
        ]
