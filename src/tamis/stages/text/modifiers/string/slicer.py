"""A part of each document, by position or by what stands around it."""

from __future__ import annotations

from tamis.errors import UsageError
from tamis.stages.text.modifiers.doc_modifier import DocumentModifier


class Slicer(DocumentModifier):
    """Keeps text[left:right].

    A number is a position (as in Python's slices); a string means its first occurrence (`left`) or its last (`right`), itself
    included or not. A document without that string becomes empty.
    """

    def __init__(
        self,
        left: int | str | None = 0,
        right: int | str | None = None,
        include_left: bool = True,
        include_right: bool = True,
        strip: bool = True,
    ) -> None:
        for side, value in (("left", left), ("right", right)):
            if isinstance(value, bool) or not isinstance(value, (int, str, type(None))):
                raise UsageError(f"Slicer({side}=...): expected a number, a string or None, got {value!r}")
        self.left, self.right = left, right
        self.include_left, self.include_right, self.strip = include_left, include_right, strip

    def modify_document(self, text: str) -> str:
        left, right = self.left, self.right
        if isinstance(left, str):
            found = text.find(left)
            if found < 0:
                return ""
            left = found if self.include_left else found + len(left)
        if isinstance(right, str):
            found = text.rfind(right)
            if found < 0:
                return ""
            right = found + len(right) if self.include_right else found
        part = text[left:right]
        return part.strip() if self.strip else part
