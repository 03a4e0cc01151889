"""Describe: what a dataset card tells of the documents that are written, counted in the last pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tamis._lazy import pc
from tamis.stages.base import ProcessingStage
from tamis.tasks import DocumentBatch

LICENCE_FIELDS = ("license", "licence", "license_type")
CHARS, LICENCE, LANGUAGE = "characters", "licence", "language"
_MAX_CHARS = 60
_MAX_VALUES = 100


@dataclass(repr=False)
class Describe(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Counts characters of texts, licences where documents name one, and languages where a field has them. Changes nothing."""

    text_field: str = "text"
    language_fields: Sequence[str] = ("language",)
    name: str = "describe"

    def inputs(self) -> Any:
        return ["data"], [self.text_field]

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        if not batch.num_items:
            return batch
        self._log_metric(CHARS, float(pc.sum(pc.utf8_length(batch.texts(self.text_field))).as_py() or 0))
        there = set(batch.get_columns())
        for what, fields in ((LICENCE, LICENCE_FIELDS), (LANGUAGE, self.language_fields)):
            for field in [f for f in fields if f in there]:
                self._log_metrics(counted(what, batch.values(field)))
        return batch


def counted(what: str, values: Sequence[Any]) -> dict[str, float]:
    """Count how often each value occurs; values that are not a short text count as others.

    >>> counted("language", ["en", "en", "[0.97, 'de']", None, 5])
    {'language=en': 2.0, 'language=de': 1.0, 'language=(others)': 1.0}
    """
    found: dict[str, float] = {}
    for value in values:
        if value is None:
            continue
        name = value.rpartition(", '")[2].removesuffix("']") if isinstance(value, str) and value[:1] == "[" else value
        fits = isinstance(name, str) and 0 < len(name) <= _MAX_CHARS and name.isprintable()
        key = f"{what}={name if fits and (len(found) < _MAX_VALUES or f'{what}={name}' in found) else '(others)'}"
        found[key] = found.get(key, 0.0) + 1.0
    return found
