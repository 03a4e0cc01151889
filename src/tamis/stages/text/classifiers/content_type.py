"""ContentTypeClassifier: what kind of text it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from tamis.stages.text.classifiers.base import LabelClassifier

CONTENT_TYPE_MODEL_IDENTIFIER = "nvidia/content-type-classifier-deberta"


@dataclass(repr=False)
class ContentTypeClassifier(LabelClassifier):
    """One of 11 kinds of text: a blog, a news article, a product page, ... (DeBERTa, 1,024 tokens)."""

    label_field: str = "content_pred"
    max_chars: int | None = 6000
    model_identifier: str = field(default=CONTENT_TYPE_MODEL_IDENTIFIER, kw_only=True)
    max_seq_length: int | None = field(default=1024, kw_only=True)
