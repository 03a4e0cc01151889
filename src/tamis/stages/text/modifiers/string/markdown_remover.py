"""Markdown marks: bold, italic, underline and links.

Emphasis by stars and links are found by RE2, in linear time. Emphasis by underscores needs to look around (snake_case is no
emphasis), which RE2 cannot: a scanner does that, in documents that have an underscore.
"""

from __future__ import annotations

from bisect import bisect_left

from tamis._lazy import pa, pc
from tamis.stages.text.modifiers.doc_modifier import ColumnModifier, DocumentModifier, replace_regex

_BOLD, _ITALIC, _LINK = r"\*\*(.*?)\*\*", r"\*(.*?)\*", r"\[.*?\]\((.*?)\)"


class MarkdownRemover(ColumnModifier):
    """`**bold**`, `*italic*`, `_underline_` and `__underline__` lose their marks; of `[text](url)` the url stays."""

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
    closers: dict[int, list[int]] = {1: [], 2: []}  # width of the mark -> where it can close
    n, at = len(line), line.find("_")
    while at >= 0:
        if at > 0 and not line[at - 1].isspace():
            if at + 1 == n or not _is_word(line[at + 1]):
                closers[1].append(at)
            elif line[at + 1] == "_" and (at + 2 == n or not _is_word(line[at + 2])):
                closers[2].append(at)
        at = line.find("_", at + 1)
    parts, done, at = [], 0, line.find("_")
    while at >= 0:
        following = at + 1
        if at == 0 or not _is_word(line[at - 1]):
            for width in (2, 1) if line.startswith("__", at) else (1,):
                begin = at + width
                if begin >= n or line[begin].isspace():
                    continue
                k = bisect_left(closers[width], begin + 1)
                if k < len(closers[width]):
                    end = closers[width][k]
                    parts += [line[done:at], line[begin:end]]
                    done = following = end + width
                    break
        at = line.find("_", following)
    return "".join([*parts, line[done:]])


def _is_word(c: str) -> bool:
    return c == "_" or c.isalnum()
