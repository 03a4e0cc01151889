"""No more than two line breaks in a row."""

from __future__ import annotations

from tamis._lazy import pa
from tamis.stages.text.modifiers.doc_modifier import ColumnModifier, replace_regex


class NewlineNormalizer(ColumnModifier):
    r"""Three or more `\n` become two, then three or more `\r\n` become two of those."""

    def modify_batch(self, texts: pa.Array) -> pa.Array:
        texts = replace_regex(texts, "\n{3,}", "\n\n", needs="\n\n\n")
        return replace_regex(texts, "(?:\r\n){3,}", "\r\n\r\n", needs="\r\n\r\n\r\n")
