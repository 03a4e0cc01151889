"""Cleaning after C4: boilerplate paragraphs, and line by line.

The rules and their order are those of the C4 statistics (kernels, filters), so that a filter and a cleaner agree.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

from tamis._lazy import np, pa, pc
from tamis.errors import UsageError
from tamis.stages.text.modifiers.doc_modifier import ColumnModifier, DocumentModifier, with_texts
from tamis.stages.text.modifiers.string.kept_lines import keep_lines

if TYPE_CHECKING:
    from tamis.kernels.text.split_lines import LineTable

C4_POLICY = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")
POLICY = (
    *C4_POLICY,
    "privacy overview",
    "privacy & cookies policy",
    "privacy and cookies policy",
    "necessary cookies are absolutely essential",
    "any cookies that may not be particularly necessary",
    "if you continue to browse this site without changing your cookie settings",
)
_CITATION = re.compile(r"\[\d*]|\[edit]|\[citation needed]")  # digits end where they end: no way to backtrack


class BoilerPlateStringModifier(DocumentModifier):
    """Removes paragraphs with policy phrases (cookies, privacy, terms of use) at the top or bottom of a document.

    Boilerplate in the middle, or nothing but boilerplate, leaves the document as it is (a filter's business). With
    `remove_if_at_top_or_bottom=False` any boilerplate makes the document empty. "Lorem ipsum" always does.
    """

    def __init__(self, remove_if_at_top_or_bottom: bool = True) -> None:
        self.remove_if_at_top_or_bottom = remove_if_at_top_or_bottom

    def modify_document(self, text: str) -> str:
        low = text.lower()
        if "lorem ipsum" in low:
            return ""
        if not any(phrase in low for phrase in POLICY):
            return text
        paragraphs = text.split("\n\n")
        is_bad = [_has_policy(p) for p in paragraphs]
        if not any(is_bad):  # a phrase across two paragraphs
            return text
        if not self.remove_if_at_top_or_bottom:
            return ""
        if all(is_bad):
            return text
        first, last = is_bad.index(False), len(is_bad) - is_bad[::-1].index(False)
        return text if any(is_bad[first:last]) else "\n\n".join(paragraphs[first:last])


def _has_policy(paragraph: str) -> bool:
    low = paragraph.lower()
    return any(phrase in low for phrase in POLICY)


class C4LineCleaner(ColumnModifier):
    """Keeps the lines that C4 would keep, without the whitespace around them, and joins them by line feeds.

    A line goes if it has a word of more than `max_word_length` characters, does not end in . ? ! " or ' (or ends in "..."),
    has fewer than `min_words_per_line` words, mentions javascript, or has a policy phrase. A line that would stay but for
    "lorem ipsum" or a curly bracket makes the whole document empty: "" is what a document to be dropped looks like; any
    filter on length removes it. Citations such as [1], [edit] and [citation needed] do not count at the end of a line, and
    are removed with `remove_citations`.
    """

    kernel_groups: ClassVar[tuple[str, ...]] = ("text",)  # as of a stage: loaded before any memory cap

    def __init__(
        self,
        min_words_per_line: int = 3,
        max_word_length: int = 1000,
        terminal_punctuation: bool = True,
        drop_javascript_lines: bool = True,
        drop_policy_lines: bool = True,
        drop_lorem_ipsum: bool = True,
        drop_curly_bracket: bool = True,
        remove_citations: bool = False,
    ) -> None:
        for name, value in (("min_words_per_line", min_words_per_line), ("max_word_length", max_word_length)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise UsageError(f"C4LineCleaner({name}=...): expected a whole number from 0, got {value!r}")
        self.min_words_per_line, self.max_word_length = min_words_per_line, max_word_length
        self.terminal_punctuation = terminal_punctuation
        self.drop_javascript_lines, self.drop_policy_lines = drop_javascript_lines, drop_policy_lines
        self.drop_lorem_ipsum, self.drop_curly_bracket = drop_lorem_ipsum, drop_curly_bracket
        self.remove_citations = remove_citations

    def modify_batch(self, texts: pa.Array) -> pa.Array:
        cleaned = keep_lines(texts, self._decide, self.terminal_punctuation)
        if not self.remove_citations:
            return cleaned
        cited = pc.fill_null(pc.match_substring(cleaned, pattern="["), False)
        at = np.flatnonzero(cited.to_numpy(zero_copy_only=False))
        return with_texts(cleaned, at, [_without_citations(cleaned[i].as_py()) for i in at.tolist()])

    def _decide(self, lines: LineTable) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """(kept, empties the document) for each line, by rules in their order: those that come first hide later ones."""
        from tamis.kernels.text import split_lines as rules

        def has(flag: int, asked: bool) -> np.ndarray[Any, Any]:
            found: np.ndarray[Any, Any] = (lines.flags & (flag if asked else 0)) != 0
            return found

        sentence = (lines.longest_word <= self.max_word_length) & (lines.n_words >= self.min_words_per_line)
        if self.terminal_punctuation:
            sentence &= has(rules.LINE_TERMINAL, True)
        javascript = has(rules.LINE_JAVASCRIPT, self.drop_javascript_lines)
        curly = has(rules.LINE_CURLY, self.drop_curly_bracket) & ~javascript
        empties = sentence & (has(rules.LINE_LOREM, self.drop_lorem_ipsum) | curly)
        return sentence & ~javascript & ~has(rules.LINE_POLICY, self.drop_policy_lines), empties


def _without_citations(text: str) -> str:
    return "\n".join(_CITATION.sub("", line).strip() if "[" in line else line for line in text.split("\n"))
