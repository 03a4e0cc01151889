"""LanguageFilter: keep documents of one language, or those whose language is clear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tamis.stages.base import ProcessingStage
from tamis.stages.text.filters.base import DocumentFilter
from tamis.stages.text.filters.fasttext import FastTextLangId
from tamis.stages.text.filters.rule_set import RuleSet
from tamis.stages.text.filters.score_filter import ScoreFilter
from tamis.stages.text.langid import MAX_BYTES


@dataclass(repr=False)
class LanguageFilter(RuleSet):
    """By a fastText model (docs/language-id.md). `lang` None: any language that has `min_score`. `language_field`: a field that
    keeps the score and the language, as "[0.97, 'en']"."""

    lang: str | None = None
    min_score: float = 0.65
    model_path: str | None = None
    max_bytes: int = MAX_BYTES
    language_field: str | None = None
    text_field: str = "text"
    name: str = "language"

    def filters(self) -> list[DocumentFilter]:
        return [FastTextLangId(self.model_path, self.min_score, self.lang, self.max_bytes)]

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        return [ScoreFilter(self.filters()[0], self.text_field, score_field=self.language_field, name=self.name)]
