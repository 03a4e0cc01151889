"""Modifiers of strings: parts of a text, lines, whitespace, URLs and Markdown. Those of C4 are in `c4.py`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from tamis import _deep_paths
from tamis._lazy import pa, pc
from tamis.errors import UsageError
from tamis.stages.text.modifiers.c4 import BoilerPlateStringModifier, C4LineCleaner
from tamis.stages.text.modifiers.doc_modifier import ColumnModifier, DocumentModifier, replace_regex

__all__ = [
    "BoilerPlateStringModifier",
    "C4LineCleaner",
    "LineRemover",
    "MarkdownRemover",
    "NewlineNormalizer",
    "QuotationRemover",
    "Slicer",
    "UrlRemover",
    "WhitespaceNormalizer",
]


class Slicer(DocumentModifier):
    """Keeps text[left:right].

    A number is a position (as in Python's slices); a string is its first (`left`) or last (`right`) occurrence, itself
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
            start = text.find(left)
            if start < 0:
                return ""
            left = start if self.include_left else start + len(left)
        if isinstance(right, str):
            start = text.rfind(right)
            if start < 0:
                return ""
            right = start + len(right) if self.include_right else start
        part = text[left:right]
        return part.strip() if self.strip else part


class LineRemover(DocumentModifier):
    """Removes the lines (between line feeds) that equal one of `patterns`, which are plain strings."""

    def __init__(self, patterns: Sequence[str]) -> None:
        if isinstance(patterns, str) or not all(isinstance(p, str) for p in patterns):
            raise UsageError(f"LineRemover(patterns=...): expected a list of strings, got {patterns!r}")
        if broken := [p for p in patterns if "\n" in p]:
            raise UsageError(f"LineRemover(patterns=...): {broken[0]!r} contains a line feed, so no line can equal it")
        self.patterns = list(patterns)
        self._lines = frozenset(patterns)

    def modify_document(self, text: str) -> str:
        if not any(pattern in text for pattern in self._lines):
            return text
        return "\n".join([line for line in text.split("\n") if line not in self._lines])


class QuotationRemover(DocumentModifier):
    """Removes the marks of a document that begins and ends with `"`, unless its first line alone is a quotation."""

    def candidates(self, texts: pa.Array) -> pa.Array:
        return pc.starts_with(texts, pattern='"')

    def modify_document(self, text: str) -> str:
        if len(text.strip()) <= 2 or text[0] != '"' or text[-1] != '"':
            return text
        first, newline, _ = text.partition("\n")
        return text if newline and first.endswith('"') else text[1:-1]


class NewlineNormalizer(ColumnModifier):
    r"""Replaces three or more `\n` by two, then three or more `\r\n` by two."""

    def modify_batch(self, texts: pa.Array) -> pa.Array:
        texts = replace_regex(texts, "\n{3,}", "\n\n", needs="\n\n\n")
        return replace_regex(texts, "(?:\r\n){3,}", "\r\n\r\n", needs="\r\n\r\n\r\n")


# The line breaks of str.splitlines(), and the other whitespace of str.isspace(). Patterns match only what has to
# change.
_BREAK = r"\r\n|[\r\x0b\x0c\x1c-\x1e\x{85}\x{2028}\x{2029}]"
_ODD = r"\t\x1f\x{a0}\x{1680}\x{2000}-\x{200a}\x{202f}\x{205f}\x{3000}"
_SPACES = rf" *[{_ODD}][ {_ODD}]*| {{2,}}"


class WhitespaceNormalizer(ColumnModifier):
    r"""Writes one `\n` for every kind of line break and one space for every run of other whitespace, none at line ends.

    Keeps at most `max_newlines` line breaks in a row (None: all), and none at the ends of the document.
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


# RE2's \S covers ASCII only; like in Python, any character of str.isspace() ends a URL.
_NOT_SPACE = r"[^\t-\r\x1c- \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]"
_URL = rf"(?i)https?://{_NOT_SPACE}+|www\.{_NOT_SPACE}+"


class UrlRemover(ColumnModifier):
    """Removes all URLs, from http://, https:// or www. to the next whitespace."""

    def modify_batch(self, texts: pa.Array) -> pa.Array:
        return replace_regex(texts, _URL, "")


_BOLD, _ITALIC, _LINK = r"\*\*(.*?)\*\*", r"\*(.*?)\*", r"\[.*?\]\((.*?)\)"


class MarkdownRemover(ColumnModifier):
    """Removes the marks of `**bold**`, `*italic*`, `_underline_` and `__underline__`; replaces `[a](url)` by url.

    RE2 finds emphasis by stars, and links, in linear time. Emphasis by underscores requires lookaround (snake_case is
    not emphasis), which RE2 does not have: a scanner does that, in documents that have an underscore.
    """

    def modify_batch(self, texts: pa.Array) -> pa.Array:
        texts = replace_regex(texts, _BOLD, r"\1", needs="**")
        texts = replace_regex(texts, _ITALIC, r"\1", needs="*")
        return replace_regex(_Underscores().modify_batch(texts), _LINK, r"\1", needs="](")


class _Underscores(DocumentModifier):
    def candidates(self, texts: pa.Array) -> pa.Array:
        return pc.match_substring(texts, pattern="_")

    def modify_document(self, text: str) -> str:
        return "\n".join([_without_underscores(line) if "_" in line else line for line in text.split("\n")])


def _without_underscores(line: str) -> str:
    """Remove underscore emphasis marks.

    As in CommonMark, marks open after a non-word character and close before one, and directly enclose their
    content.
    """
    position = line.find("_")
    singles, doubles = _closing_marks(line, position)
    if not singles and not doubles:
        return line
    closers, n = {1: singles, 2: doubles}, len(line)
    parts, done = [], 0
    while position >= 0:
        following = position + 1
        if position == 0 or not _is_word(line[position - 1]):
            for width in (2, 1) if line.startswith("__", position) else (1,):
                begin = position + width
                if begin >= n or line[begin].isspace():
                    continue
                k = bisect_left(closers[width], begin + 1)
                if k < len(closers[width]):
                    end = closers[width][k]
                    parts += [line[done:position], line[begin:end]]
                    done = following = end + width
                    break
        position = line.find("_", following)
    parts.append(line[done:])
    return "".join(parts)


def _closing_marks(line: str, position: int) -> tuple[list[int], list[int]]:
    """Return where a mark of one underscore, and one of two, can close; `position`: the first underscore."""
    singles: list[int] = []
    doubles: list[int] = []
    n = len(line)
    while position >= 0:
        if position > 0 and not line[position - 1].isspace():
            if position + 1 == n or not _is_word(line[position + 1]):
                singles.append(position)
            elif line[position + 1] == "_" and (position + 2 == n or not _is_word(line[position + 2])):
                doubles.append(position)
        position = line.find("_", position + 1)
    return singles, doubles


def _is_word(c: str) -> bool:
    return c == "_" or c.isalnum()


_deep_paths.register(
    __name__,
    "c4",
    "line_remover",
    "markdown_remover",
    "newline_normalizer",
    "quotation_remover",
    "slicer",
    "url_remover",
)
