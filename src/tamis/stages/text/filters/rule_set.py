"""RuleSet: the base of published rule sets, each a chain of filters under one name.

A set is a dataclass with the thresholds of its paper as defaults, and a method that lists its rules in order. The sets
that `tamis filter` knows by name say so themselves (`sets`); `catalogue.py` collects them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar

from tamis.errors import UsageError
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.text.filters.doc_filter import DocumentFilter, StatisticFilter
from tamis.stages.text.filters.score_filter import ScoreFilter
from tamis.tasks import DocumentBatch


class RuleSet(CompositeStage[DocumentBatch, DocumentBatch]):
    """One chain of filters; subclasses are dataclasses with the limits of their rules, `text_field` and `name`."""

    sets: ClassVar[tuple[str, ...]] = ()
    """Names of the sets of the command line that this chain is part of."""
    text_field: str

    def __post_init__(self) -> None:
        super().__init__()
        self.decompose()  # report an invalid parameter when the set is constructed

    @abstractmethod
    def filters(self) -> list[DocumentFilter]:
        """Return the rules in their order. A rule whose limit is None is left out."""

    def rule(
        self, label: str, statistic: str, per: str | None = None, *, low: str | None = None, high: str | None = None
    ) -> list[DocumentFilter]:
        """Return a rule whose limits are parameters of this set, given by their names; none if they are None."""
        values = {side: getattr(self, name) for side, name in (("low", low), ("high", high)) if name is not None}
        names = {side: f"{name}: {{}}" for side, name in (("minimum", low), ("maximum", high)) if name is not None}
        return [one.set_by(**names) for one in rule(label, statistic, per, **values)]

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        filters = self.filters()
        if not filters:
            raise UsageError(f"{self.name}: every rule is switched off; keep at least one, or leave the set out")
        return [ScoreFilter(filters, text_field=self.text_field, name=self.name)]


def rule(
    label: str, statistic: str, per: str | None = None, *, low: Any = None, high: Any = None, when_nothing: float = 0.0
) -> list[DocumentFilter]:
    """Return one rule with the limits `low` and `high`, or none if both are None."""
    if low is None and high is None:
        return []
    bounds = -math.inf if low is None else low, math.inf if high is None else high
    return [StatisticFilter(label, statistic, per, *bounds, when_nothing)]
