"""Unicode normal forms, in linear time.

Putting combining marks into their order takes Python's `unicodedata` time quadratic in the number of marks in a row. Documents
with more than 30 in a row (the limit of Unicode's stream-safe format) get them sorted first.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from tamis.errors import UsageError
from tamis.stages.text.modifiers.doc_modifier import DocumentModifier

if TYPE_CHECKING:
    import pyarrow as pa

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]
_MANY = 30


class UnicodeNormalizer(DocumentModifier):
    """`unicodedata.normalize(form, text)`."""

    def __init__(self, form: Form = "NFC") -> None:
        if form not in ("NFC", "NFD", "NFKC", "NFKD"):
            raise UsageError(f"UnicodeNormalizer(form=...): expected NFC, NFD, NFKC or NFKD, got {form!r}")
        self.form: Form = form

    def candidates(self, texts: pa.Array) -> pa.Array:
        import pyarrow.compute as pc

        return pc.invert(pc.string_is_ascii(texts))

    def modify_document(self, text: str) -> str:
        if text.isascii():
            return text
        if _longest_run_of_marks(text) > _MANY:
            text = _in_order(text, "NFD" if self.form in ("NFC", "NFD") else "NFKD")
        return unicodedata.normalize(self.form, text)


def _longest_run_of_marks(text: str) -> int:
    longest = run = 0
    for c in text:
        run = run + 1 if c > "\u02ff" and unicodedata.combining(c) else 0
        longest = max(longest, run)
    return longest


def _in_order(text: str, form: Form) -> str:
    """Decomposed, with marks sorted by their class between starters."""

    @lru_cache(maxsize=4096)
    def parts(c: str) -> str:
        return unicodedata.normalize(form, c)

    out: list[str] = []
    marks: list[str] = []
    for whole in text:
        for c in parts(whole):
            if unicodedata.combining(c):
                marks.append(c)
                continue
            if marks:
                out += sorted(marks, key=unicodedata.combining)
                marks = []
            out.append(c)
    return "".join([*out, *sorted(marks, key=unicodedata.combining)])
