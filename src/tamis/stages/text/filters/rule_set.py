"""RuleSet: the base of the published rule sets. A set is one chain of filters under one name."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from tamis.errors import UsageError
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.text.filters.base import DocumentFilter
from tamis.stages.text.filters.score_filter import ScoreFilter
from tamis.tasks import DocumentBatch


class RuleSet(CompositeStage[DocumentBatch, DocumentBatch]):
    """Subclasses are dataclasses with the parameters of their rules, and `text_field` and `name`."""

    text_field: str

    def __post_init__(self) -> None:
        super().__init__()
        self.decompose()  # a wrong parameter is said now

    @abstractmethod
    def filters(self) -> list[DocumentFilter]:
        """Return the rules in their order. A rule whose limit is None is left out."""

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        filters = self.filters()
        if not filters:
            raise UsageError(f"{self.name}: every rule is switched off; keep at least one, or leave the set out")
        return [ScoreFilter(filters, text_field=self.text_field, name=self.name)]
