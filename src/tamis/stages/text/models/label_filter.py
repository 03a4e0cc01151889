"""Keep documents by the label that a classifier gave them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tamis.errors import UsageError
from tamis.stages.text.filters.doc_filter import DocumentFilter


@dataclass
class LabelFilter(DocumentFilter):
    """Keeps documents whose label is one of these; of several labels (a list) one is enough.

    A document without a label (it has no text) goes.
    """

    labels: list[Any]
    _name = "label"

    def __post_init__(self) -> None:
        if not isinstance(self.labels, (list, tuple)) or not self.labels:
            raise UsageError(f"filter_by: expected a list of labels, got {self.labels!r}")

    def score_document(self, text: str) -> str:
        return text

    def keep_document(self, score: Any) -> bool:
        return has_one_of(score, self.labels)


def has_one_of(label: Any, labels: Sequence[Any]) -> bool:
    """Return True if a label, or one of a list of labels, is among `labels`."""
    return any(one in labels for one in label) if isinstance(label, list) else label in labels


def refuse_unknown(wanted: Sequence[Any], known: Sequence[Any], model: str) -> None:
    """Reject labels that a model never gives: they would drop every document, or those that are meant.

    `known`: empty for a model that gives numbers.
    """
    if not known:
        raise UsageError(
            f"filter_by (--keep): the model {model} is a regression, whose label is a number, and none of "
            f"{_some(wanted)}; keep documents by that "
            "number behind it instead (Filter)"
        )
    missing = [label for label in wanted if label not in known]
    if missing:
        raise UsageError(
            f"filter_by (--keep): the model {model} has no label {_some(missing)}; expected some of {_some(known)}"
        )


def _some(labels: Sequence[Any]) -> str:
    return ", ".join(repr(label) for label in labels[:30]) + (
        f" and {len(labels) - 30} more" if len(labels) > 30 else ""
    )
