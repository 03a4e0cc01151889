"""Lines that are exactly one of the given strings go."""

from __future__ import annotations

from collections.abc import Sequence

from tamis.errors import UsageError
from tamis.stages.text.modifiers.doc_modifier import DocumentModifier


class LineRemover(DocumentModifier):
    """Removes the lines (between line feeds) that equal one of `patterns`, which are plain strings."""

    def __init__(self, patterns: Sequence[str]) -> None:
        if isinstance(patterns, str) or not all(isinstance(p, str) for p in patterns):
            raise UsageError(f"LineRemover(patterns=...): expected a list of strings, got {patterns!r}")
        if broken := [p for p in patterns if "\n" in p]:
            raise UsageError(f"LineRemover(patterns=...): {broken[0]!r} holds a line feed, so no line can equal it")
        self.patterns = list(patterns)
        self._lines = frozenset(patterns)

    def modify_document(self, text: str) -> str:
        if not any(pattern in text for pattern in self._lines):
            return text
        return "\n".join([line for line in text.split("\n") if line not in self._lines])
