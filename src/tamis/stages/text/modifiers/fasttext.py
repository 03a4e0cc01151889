"""FastTextLabelModifier: writes texts in the format of fastText's training files."""

from __future__ import annotations

from tamis import _deep_paths
from tamis._lazy import pa, pc
from tamis.errors import UsageError
from tamis.stages.text.modifiers.doc_modifier import ColumnModifier


class FastTextLabelModifier(ColumnModifier):
    """Writes `label text`, with line feeds and any `__label__` inside the text replaced by spaces."""

    def __init__(self, label: str) -> None:
        if not isinstance(label, str) or not label or label.split() != [label]:  # fastText's labels are words
            raise UsageError(f"FastTextLabelModifier(label=...): expected a label such as '__label__hq', got {label!r}")
        self.label = label

    def modify_batch(self, texts: pa.Array) -> pa.Array:
        for pattern in ("\n", "__label__"):
            texts = pc.replace_substring(texts, pattern=pattern, replacement=" ")
        return pc.binary_join_element_wise(pa.scalar(self.label, texts.type), texts, pa.scalar(" ", texts.type))


_deep_paths.register(__name__, "fasttext_label")
