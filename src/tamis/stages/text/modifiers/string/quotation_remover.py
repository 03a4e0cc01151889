"""Quotation marks around a whole document."""

from __future__ import annotations

from tamis._lazy import pa, pc
from tamis.stages.text.modifiers.doc_modifier import DocumentModifier


class QuotationRemover(DocumentModifier):
    """Removes the marks of a document that begins and ends with `"`, unless its first line alone is a quotation."""

    def candidates(self, texts: pa.Array) -> pa.Array:
        return pc.starts_with(texts, pattern='"')

    def modify_document(self, text: str) -> str:
        if len(text.strip()) <= 2 or text[0] != '"' or text[-1] != '"':
            return text
        first, newline, _ = text.partition("\n")
        return text if newline and first.endswith('"') else text[1:-1]
