"""Cleaning after C4: boilerplate paragraphs, and line by line.

The rules and their order are those of the C4 statistics (kernels, filters), so that a filter and a cleaner agree.
"""

from __future__ import annotations

import re

from tamis.errors import UsageError
from tamis.stages.text.modifiers.doc_modifier import DocumentModifier

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
_END_MARKS = (".", "?", "!", '"', "'")
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


class C4LineCleaner(DocumentModifier):
    """Keeps the lines that C4 would keep, without the whitespace around them, and joins them by line feeds.

    A line goes if it has a word of more than `max_word_length` characters, does not end in . ? ! " or ' (or ends in "..."),
    has fewer than `min_words_per_line` words, mentions javascript, or has a policy phrase. A line that would stay but for
    "lorem ipsum" or a curly bracket makes the whole document empty: "" is what a document to be dropped looks like; any
    filter on length removes it. Citations such as [1], [edit] and [citation needed] do not count at the end of a line, and
    are removed with `remove_citations`.
    """

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

    def modify_document(self, text: str) -> str:
        kept = []
        for raw in text.splitlines():
            line = raw.strip()
            bare = _CITATION.sub("", line) if "[" in line else line
            if not self._is_sentence(line, bare):
                continue
            low = line.lower()
            if self.drop_lorem_ipsum and "lorem ipsum" in low:
                return ""
            if self.drop_javascript_lines and "javascript" in low:
                continue
            if self.drop_curly_bracket and "{" in line:
                return ""
            if self.drop_policy_lines and any(phrase in low for phrase in C4_POLICY):
                continue
            kept.append(bare.strip() if self.remove_citations else line)
        return "\n".join(kept)

    def _is_sentence(self, line: str, bare: str) -> bool:
        if self.terminal_punctuation and (not bare.endswith(_END_MARKS) or bare.endswith("...")):
            return False
        words = line.split()
        return len(words) >= self.min_words_per_line and (
            len(line) <= self.max_word_length or max(map(len, words)) <= self.max_word_length
        )
