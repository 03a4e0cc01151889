"""Unicode normal forms, in linear time.

Putting combining marks into their order takes Python's `unicodedata` time quadratic in the number of marks in a row. Documents
with more than 30 in a row (the limit of Unicode's stream-safe format) get them sorted first.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Any, Literal

from tamis._lazy import np, pa, pc
from tamis.errors import UsageError
from tamis.stages.text.modifiers.doc_modifier import DocumentModifier

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]
_MANY, _END = 30, 0x20000
_BEYOND_LATIN = re.compile(f"[\u0300-\U0010ffff]{{{_MANY + 1}}}")


class UnicodeNormalizer(DocumentModifier):
    """`unicodedata.normalize(form, text)`."""

    def __init__(self, form: Form = "NFC") -> None:
        if form not in ("NFC", "NFD", "NFKC", "NFKD"):
            raise UsageError(f"UnicodeNormalizer(form=...): expected NFC, NFD, NFKC or NFKD, got {form!r}")
        self.form: Form = form

    def candidates(self, texts: pa.Array) -> pa.Array:
        return pc.invert(pc.string_is_ascii(texts))

    def modify_document(self, text: str) -> str:
        if text.isascii():
            return text
        if _has_many_marks(text):
            text = _in_order(text, "NFD" if self.form in ("NFC", "NFD") else "NFKD")
        return unicodedata.normalize(self.form, text)


def _has_many_marks(text: str) -> bool:
    """More marks in a row than any language writes; also characters that only decompose into marks."""
    if _BEYOND_LATIN.search(text) is None:
        return False
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    others = np.flatnonzero(~_marks()[np.minimum(codes, _END)])
    return int(np.diff(others, prepend=-1, append=len(codes)).max()) > _MANY + 1


@lru_cache(maxsize=1)
def _marks() -> np.ndarray[Any, Any]:
    """By code point: whether it is a mark in any form."""
    table = np.zeros(_END + 1, bool)
    for code in range(0x300, _END):
        table[code] = unicodedata.combining(unicodedata.normalize("NFKD", chr(code))[0]) != 0
    return table


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
