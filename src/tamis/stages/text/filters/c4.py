"""C4's rules for whole documents.

Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer", section 2.2.

A document is dropped if "lorem ipsum" or a curly bracket occurs, or if the lines that C4 keeps hold fewer than five
sentences. The text is not changed: removing the lines that C4 does not keep is the work of `modifiers/c4.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tamis.stages.base import ProcessingStage
from tamis.stages.text.filters.doc_filter import DocumentFilter
from tamis.stages.text.filters.has_text import HasText
from tamis.stages.text.filters.rule_set import RuleSet, rule


@dataclass(repr=False)
class C4Quality(RuleSet):
    """Placeholder text, curly brackets, and too few sentences in lines that C4 keeps.

    `min_num_sentences=None` leaves that rule out.
    """

    min_num_sentences: int | None = 5
    filter_lorem_ipsum: bool = True
    filter_curly_bracket: bool = True
    text_field: str = "text"
    name: str = "c4_quality"
    sets: ClassVar[tuple[str, ...]] = ("c4",)

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        """Return the rules, before them one for documents without text, which would be too few sentences otherwise."""
        rules = super().decompose()
        return (
            rules
            if self.min_num_sentences is None
            else [HasText(self.text_field, "c4_text", symbols_count=True), *rules]
        )

    def filters(self) -> list[DocumentFilter]:
        return [
            *_switched("lorem_ipsum", "filter_lorem_ipsum", self.filter_lorem_ipsum),
            *_switched("curly_bracket", "filter_curly_bracket", self.filter_curly_bracket),
            *self.rule("too_few_sentences", "c4_sentences", low="min_num_sentences"),
        ]


def _switched(label: str, parameter: str, is_on: bool) -> list[DocumentFilter]:
    """Return a rule against any occurrence, which a parameter switches off."""
    rules = rule(label, f"c4_{label}", high=0 if is_on else None)
    return [one.set_by(maximum=f"{parameter}: false") for one in rules]
