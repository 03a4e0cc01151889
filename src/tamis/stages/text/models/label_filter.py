"""Keep documents by the label that a classifier gave them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tamis.errors import UsageError
from tamis.stages.text.filters.base import DocumentFilter


@dataclass
class LabelFilter(DocumentFilter):
    """Keeps documents whose label is one of these. A document without a label (it has no text) goes."""

    labels: list[Any]
    _name = "label"

    def __post_init__(self) -> None:
        if not isinstance(self.labels, (list, tuple)) or not self.labels:
            raise UsageError(f"filter_by: expected a list of labels, got {self.labels!r}")

    def score_document(self, text: str) -> str:
        return text

    def keep_document(self, score: Any) -> bool:
        return score in self.labels
