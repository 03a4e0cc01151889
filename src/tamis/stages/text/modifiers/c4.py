"""C4's cleaning: boilerplate paragraphs, and lines.

Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer", section 2.2.

The rules and their order are those of the C4 statistics (kernels, filters), so that a filter and a cleaner agree. Lines
are those of str.splitlines(); a kernel computes their properties in a table of 40 bytes per line, for half a megabyte
of text at a time: a text of line breaks alone would need a table of 40 times its size.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from tamis._lazy import np, pa, pc
from tamis.errors import UsageError
from tamis.stages.text.modifiers.doc_modifier import ColumnModifier, DocumentModifier, with_texts

if TYPE_CHECKING:
    from tamis.kernels.buffers import StringBuffers
    from tamis.kernels.text.split_lines import LineTable

    Array = np.ndarray[Any, Any]
    Decide = Callable[[LineTable], tuple[Array, Array]]

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
_CITATION = re.compile(r"\[\d*]|\[edit]|\[citation needed]")  # cannot backtrack
_WINDOW_BYTES = 1 << 19
_BREAK = re.compile(rb"\r\n?|[\n\x0b\x0c\x1c-\x1e]|\xc2\x85|\xe2\x80[\xa8\xa9]")


class BoilerPlateStringModifier(DocumentModifier):
    """Removes paragraphs with policy phrases (cookies, privacy, terms of use) at the top or bottom of a document.

    A document with boilerplate in the middle, or nothing but boilerplate, does not change: dropping it is left to a
    filter. With `remove_if_at_top_or_bottom=False` any boilerplate makes the document empty. "Lorem ipsum" always does.
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

    A line is removed if it has a word of more than `max_word_length` characters, does not end in . ? ! " or ' (or ends
    in "..."), has fewer than `min_words_per_line` words, mentions javascript, or has a policy phrase. A line that would
    be kept without "lorem ipsum" or a curly bracket makes the whole document empty, so that a filter on length drops
    it. Citations such as [1], [edit] and [citation needed] are ignored at the end of a line, and are removed with
    `remove_citations`.
    """

    kernel_groups: ClassVar[tuple[str, ...]] = ("text",)  # like a stage's: loaded before any memory cap

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
        rows = np.flatnonzero(cited.to_numpy(zero_copy_only=False))
        return with_texts(cleaned, rows, [_without_citations(cleaned[i].as_py()) for i in rows.tolist()])

    def _decide(self, lines: LineTable) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return (is kept, empties the document) for each line; earlier rules take precedence over later ones."""
        from tamis.kernels.text import split_lines as rules

        def has(flag: int, is_enabled: bool) -> np.ndarray[Any, Any]:
            mask: np.ndarray[Any, Any] = (lines.flags & (flag if is_enabled else 0)) != 0
            return mask

        sentence = (lines.longest_word <= self.max_word_length) & (lines.n_words >= self.min_words_per_line)
        if self.terminal_punctuation:
            sentence &= has(rules.LINE_TERMINAL, True)
        javascript = has(rules.LINE_JAVASCRIPT, self.drop_javascript_lines)
        curly = has(rules.LINE_CURLY, self.drop_curly_bracket) & ~javascript
        empties = sentence & (has(rules.LINE_LOREM, self.drop_lorem_ipsum) | curly)
        return sentence & ~javascript & ~has(rules.LINE_POLICY, self.drop_policy_lines), empties


def _without_citations(text: str) -> str:
    return "\n".join(_CITATION.sub("", line).strip() if "[" in line else line for line in text.split("\n"))


def keep_lines(texts: pa.Array, decide: Decide, only_terminal: bool = False) -> pa.Array:
    """Return texts of the lines to keep, without the whitespace around them, joined by line feeds. Null stays null.

    `decide` returns two masks for the lines of a table: those to keep, and those that make their whole text empty. With
    `only_terminal` the table has words and phrases of lines with an end mark only.
    """
    from tamis.kernels.buffers import StringBuffers, string_array, string_buffers
    from tamis.kernels.records.json_text import copy_spans
    from tamis.kernels.text.split_lines import line_table

    parts = string_buffers(texts)
    cuts, text_of = _pieces(parts)
    lengths, emptied = np.zeros(parts.n_rows, np.int64), np.zeros(parts.n_rows, bool)
    out = np.empty(int(cuts[-1] - cuts[0]), np.uint8)  # no line is longer than it was with its line break
    size, last = 0, -1  # bytes written so far, and the text of the last line written
    for a, b in _windows(cuts):
        valid = None if parts.validity is None else parts.validity[text_of[a:b]]
        table = line_table(StringBuffers(cuts[a : b + 1], parts.data, valid), only_terminal)
        keep, empties = decide(table)
        owner = np.repeat(text_of[a:b], np.diff(table.doc_ptr))
        emptied[owner[empties]] = True
        first = int(text_of[a])
        if emptied[first]:  # its lines in earlier windows are the last that were written
            size -= int(lengths[first])
            lengths[first] = 0
        lines = np.flatnonzero(keep & ~emptied[owner])
        if not len(lines):
            continue
        owner, starts = owner[lines], table.starts[lines]
        n_bytes = table.ends[lines] - starts
        seam = np.concatenate([[owner[0] == last], owner[1:] == owner[:-1]])
        to = size + np.cumsum(n_bytes + seam) - n_bytes
        copy_spans(parts.data, starts, n_bytes, out, to)
        out[to[seam] - 1] = 10
        np.add.at(lengths, owner, n_bytes + seam)
        size, last = int(to[-1] + n_bytes[-1]), int(owner[-1])
    offsets = np.zeros(parts.n_rows + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    data = out[:size] if size * 2 > len(out) else out[:size].copy()  # free the space that most texts do not need
    return string_array(offsets, data, parts.validity).cast(texts.type)


def _pieces(parts: StringBuffers) -> tuple[Array, Array]:
    """Return (cuts, text_of): piece k is data[cuts[k]:cuts[k + 1]), whole lines of text text_of[k].

    Small texts are one piece each.
    """
    offsets = np.asarray(parts.offsets, np.int64)
    view: memoryview = memoryview(parts.data)  # type: ignore[arg-type]
    inside: list[int] = []
    for i in np.flatnonzero(np.diff(offsets) > _WINDOW_BYTES).tolist():
        start, end = int(offsets[i]), int(offsets[i + 1])
        while start + _WINDOW_BYTES < end:
            line_break = _BREAK.search(view, start + _WINDOW_BYTES, end)
            if line_break is None or line_break.end() >= end:
                break
            start = line_break.end()
            inside.append(start)
    text_of = np.arange(parts.n_rows)
    if not inside:
        return offsets, text_of
    n_inside = np.diff(np.searchsorted(inside, offsets))
    return np.sort(np.concatenate([offsets, inside])), np.repeat(text_of, n_inside + 1)


def _windows(cuts: Array) -> Iterator[tuple[int, int]]:
    """Yield ranges of pieces of about _WINDOW_BYTES in all, at least one piece each."""
    a, n = 0, len(cuts) - 1
    while a < n:
        b = int(np.searchsorted(cuts, cuts[a] + _WINDOW_BYTES, side="right")) - 1
        b = min(max(b, a + 1), n)
        yield a, b
        a = b
