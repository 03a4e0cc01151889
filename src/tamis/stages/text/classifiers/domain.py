"""DomainClassifier and MultilingualDomainClassifier: what a text is about."""

from __future__ import annotations

from dataclasses import dataclass, field

from tamis.stages.text.classifiers.base import LabelClassifier

DOMAIN_MODEL_IDENTIFIER = "nvidia/domain-classifier"
MULTILINGUAL_DOMAIN_MODEL_IDENTIFIER = "nvidia/multilingual-domain-classifier"


@dataclass(repr=False)
class DomainClassifier(LabelClassifier):
    """One of 26 subjects of English texts: Health, Sports, Science, ... (DeBERTa, 512 tokens)."""

    label_field: str = "domain_pred"
    max_chars: int | None = 2000
    model_identifier: str = field(default=DOMAIN_MODEL_IDENTIFIER, kw_only=True)


@dataclass(repr=False)
class MultilingualDomainClassifier(LabelClassifier):
    """The subject of a text, as DomainClassifier, for texts in 52 languages (multilingual DeBERTa, 512 tokens)."""

    label_field: str = "multilingual_domain_pred"
    max_chars: int | None = 2000
    model_identifier: str = field(default=MULTILINGUAL_DOMAIN_MODEL_IDENTIFIER, kw_only=True)
