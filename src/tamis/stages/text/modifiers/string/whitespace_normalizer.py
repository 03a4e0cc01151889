"""Spaces and line breaks of all kinds, made regular."""

from __future__ import annotations

from tamis._lazy import pa, pc
from tamis.errors import UsageError
from tamis.stages.text.modifiers.doc_modifier import ColumnModifier, replace_regex

# What str.splitlines() breaks at, and what else str.isspace() is true for. Patterns match only what has to change.
_BREAK = r"\r\n|[\r\x0b\x0c\x1c-\x1e\x{85}\x{2028}\x{2029}]"
_ODD = r"\t\x1f\x{a0}\x{1680}\x{2000}-\x{200a}\x{202f}\x{205f}\x{3000}"
_SPACES = rf" *[{_ODD}][ {_ODD}]*| {{2,}}"


class WhitespaceNormalizer(ColumnModifier):
    r"""One `\n` for every kind of line break, one space for every run of other whitespace, none at the ends of lines.

    No more than `max_newlines` line breaks in a row (None: as many as there are), none at the ends of the document.
    """

    def __init__(self, max_newlines: int | None = 2) -> None:
        if max_newlines is not None and (
            isinstance(max_newlines, bool) or not isinstance(max_newlines, int) or not 1 <= max_newlines < 1000
        ):
            raise UsageError(f"WhitespaceNormalizer(max_newlines=...): expected 1 to 999 or None, got {max_newlines!r}")
        self.max_newlines = max_newlines

    def modify_batch(self, texts: pa.Array) -> pa.Array:
        steps = [(_BREAK, "\n"), (_SPACES, " "), (" \n ?|\n ", "\n")]
        if self.max_newlines is not None:
            steps.append((f"\n{{{self.max_newlines + 1},}}", "\n" * self.max_newlines))
        for pattern, replacement in steps:
            texts = replace_regex(texts, pattern, replacement)
        return pc.utf8_trim(texts, characters=" \n")
