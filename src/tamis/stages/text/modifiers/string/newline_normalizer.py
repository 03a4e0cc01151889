"""No more than two line breaks in a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tamis.stages.text.modifiers.doc_modifier import ColumnModifier

if TYPE_CHECKING:
    import pyarrow as pa


class NewlineNormalizer(ColumnModifier):
    r"""Three or more `\n` become two, then three or more `\r\n` become two of those."""

    def modify_batch(self, texts: pa.Array) -> pa.Array:
        import pyarrow.compute as pc

        texts = pc.replace_substring_regex(texts, pattern="\n{3,}", replacement="\n\n")
        return pc.replace_substring_regex(texts, pattern="(?:\r\n){3,}", replacement="\r\n\r\n")
