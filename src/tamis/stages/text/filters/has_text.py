"""HasText: drops documents without text, each with the reason."""

from __future__ import annotations

from typing import ClassVar

from tamis._dataclasses import dataclass
from tamis._lazy import np, pc
from tamis.stages.base import DropRule, ProcessingStage
from tamis.stages.traits import StageTraits
from tamis.tasks import MISSING, NULL, TEXT, DocumentBatch

_RULES = ("text_missing", "text_null", "text_not_a_string")


@dataclass(repr=False)
class HasText(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Drops documents whose text is missing, null, not a string, or without a single letter or digit.

    Filters score all of these as the empty text; here each has its own reason. `symbols_count`: only white space is no
    text.
    """

    text_field: str = "text"
    name: str = "text"
    symbols_count: bool = False
    traits: ClassVar[StageTraits] = StageTraits(only_drops=True)
    columns_in = ("text_field",)

    def rules(self) -> list[DropRule]:
        return [DropRule(name, name, {}) for name in self._names]

    @property
    def _names(self) -> tuple[str, ...]:
        return (*_RULES, "text_empty" if self.symbols_count else "text_without_letters")

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        kinds = batch.kinds(self.text_field)
        content = r"\S" if self.symbols_count else r"[\pL\pN]"
        empty = ~np.asarray(pc.fill_null(pc.match_substring_regex(batch.texts(self.text_field), content), False))
        keep = np.ones(batch.num_items, bool)
        other = (kinds != MISSING) & (kinds != NULL) & (kinds != TEXT)
        for name, drop in zip(
            self._names, (kinds == MISSING, kinds == NULL, other, (kinds == TEXT) & empty), strict=True
        ):
            self._note_drops(batch.serial[np.flatnonzero(drop)], name, None, {})
            keep &= ~drop
        return batch.filter(keep)
