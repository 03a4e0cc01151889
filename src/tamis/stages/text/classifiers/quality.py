"""QualityClassifier: High, Medium or Low."""

from __future__ import annotations

from dataclasses import dataclass, field

from tamis.stages.text.classifiers.base import LabelClassifier

QUALITY_CLASSIFIER_MODEL_IDENTIFIER = "nvidia/quality-classifier-deberta"


@dataclass(repr=False)
class QualityClassifier(LabelClassifier):
    """The quality of a text as people judged it: High, Medium or Low (DeBERTa, 1,024 tokens)."""

    label_field: str = "quality_pred"
    max_chars: int | None = 6000
    model_identifier: str = field(default=QUALITY_CLASSIFIER_MODEL_IDENTIFIER, kw_only=True)
    max_seq_length: int | None = field(default=1024, kw_only=True)
