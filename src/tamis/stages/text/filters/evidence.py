"""Find what speaks against a text by a rule: the ranges that reports highlight in examples of dropped documents.

That is what the statistic counts or, for a share that must be high, what lacks it: words without letters, lines without
an end mark, repeated sentences.

By the statistic that a filter compares (kernels/text), so that every filter over it has them. For few documents and in
plain Python: the ranges explain a score, and do not define it. Statistics without places in the text (its length, its
most frequent words) have none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

Ranges = list[tuple[int, int]]
_LINE = re.compile(r"[^\n]+")
_PARAGRAPH = re.compile(r"\S.*?(?=\n\s*\n|\Z)", re.DOTALL)
_WORD = re.compile(r"\S+")
_POLICIES = re.compile(
    r"terms of use|privacy policy|cookie policy|uses cookies|use of cookies|use cookies", re.IGNORECASE
)
_END_MARKS = tuple(".!?\"'”’。！？…")
_BULLETS = "•‣▶◀◦■□▪▫–-*"
_ELLIPSES = ("...", "…", ". . .")
_N_GRAM = re.compile(r"(?:gopher_)?(top|duplicate)_([0-9]+)_gram_fraction")
_LONG_WORD, _SHORT_LINE = 20, 30  # characters
_MAX_WORDS = 2000  # among which n-grams are counted
_REACH, _MAX_RANGES = 2000, 60  # characters after the first range, and ranges: what an excerpt can show


def find_ranges(statistic: str, text: str) -> Ranges:
    """Return the first ranges that a statistic counts in a text, in order, as far as an excerpt reaches.

    >>> find_ranges("digits", "a 12 b 3"), find_ranges("chars", "a")
    ([(2, 4), (7, 8)], [])
    """
    if (gram := _N_GRAM.fullmatch(statistic)) is not None:
        find = _top_gram if gram[1] == "top" else _repeated_grams
        return _near_the_first(find(text, int(gram[2])))
    finder = _FINDERS.get(statistic)
    return _near_the_first(finder(text)) if finder is not None else []


def _near_the_first(ranges: Iterable[tuple[int, int]]) -> Ranges:
    nearby: Ranges = []
    for span in ranges:
        if nearby and (span[0] > nearby[0][0] + _REACH or len(nearby) >= _MAX_RANGES):
            break
        nearby.append(span)
    return nearby


Finder = Callable[[str], Iterator[tuple[int, int]]]


def _matches(pattern: str, flags: int = 0) -> Finder:
    compiled = re.compile(pattern, flags)
    return lambda text: (m.span() for m in compiled.finditer(text))


def _lines(accepts: Callable[[str], bool]) -> Finder:
    return lambda text: (m.span() for m in _LINE.finditer(text) if (line := m[0].strip()) and accepts(line))


def _repeated(pattern: re.Pattern[str]) -> Finder:
    """Return a finder of what occurred before in the text."""

    def find(text: str) -> Iterator[tuple[int, int]]:
        seen: set[str] = set()
        for match in pattern.finditer(text):
            part = match[0].strip()
            if part and part in seen:
                yield match.span()
            seen.add(part)

    return find


def _words(accepts: Callable[[str], bool]) -> Finder:
    return lambda text: (m.span() for m in _WORD.finditer(text) if accepts(m[0]))


def _longest_word(text: str) -> Iterator[tuple[int, int]]:
    longest = max(_WORD.finditer(text), key=lambda m: m.end() - m.start(), default=None)
    return iter([longest.span()] if longest is not None else [])


def _grams(text: str, n: int) -> tuple[list[tuple[int, int]], list[tuple[str, ...]]]:
    """Return where the words of a text are, and its n-grams."""
    spans = [m.span() for m in islice(_WORD.finditer(text), _MAX_WORDS)]
    words = [text[a:b] for a, b in spans]
    return spans, list(zip(*(words[i:] for i in range(n)), strict=False))


def _top_gram(text: str, n: int) -> Iterator[tuple[int, int]]:
    spans, grams = _grams(text, n)
    if grams:
        top, times = Counter(grams).most_common(1)[0]
        ranges = ((spans[i][0], spans[i + n - 1][1]) for i, gram in enumerate(grams) if gram == top)
        yield from _joined(ranges) if times > 1 else ()


def _repeated_grams(text: str, n: int) -> Iterator[tuple[int, int]]:
    spans, grams = _grams(text, n)
    seen: set[tuple[str, ...]] = set()

    def find() -> Iterator[tuple[int, int]]:
        for i, gram in enumerate(grams):
            if gram in seen:
                yield spans[i][0], spans[i + n - 1][1]
            seen.add(gram)

    return _joined(find())


def _joined(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Join ranges that overlap."""
    start, end = -1, -1
    for a, b in ranges:
        if a > end:
            if end > start:
                yield start, end
            start = a
        end = max(end, b)
    if end > start:
        yield start, end


def _has_letter(word: str) -> bool:
    return word.isalpha() or any(map(str.isalpha, word))


_REPEATED_LINES, _REPEATED_PARAGRAPHS = _repeated(_LINE), _repeated(_PARAGRAPH)
_FINDERS: dict[str, Finder] = {
    "unique_sentences": _REPEATED_LINES,
    "unique_sentence_chars": _REPEATED_LINES,
    "duplicate_sentence_chars": _REPEATED_LINES,
    "unique_paragraphs": _REPEATED_PARAGRAPHS,
    "unique_paragraph_chars": _REPEATED_PARAGRAPHS,
    "duplicate_sentences": _REPEATED_LINES,
    "duplicate_line_runs": _REPEATED_LINES,
    "duplicate_line_run_chars": _REPEATED_LINES,
    "duplicate_paragraphs": _REPEATED_PARAGRAPHS,
    "duplicate_paragraph_chars": _REPEATED_PARAGRAPHS,
    "gopher_duplicate_paragraphs": _REPEATED_PARAGRAPHS,
    "gopher_duplicate_paragraph_chars": _REPEATED_PARAGRAPHS,
    "short_sentences": _lines(lambda line: len(line) <= _SHORT_LINE),
    "terminal_sentences": _lines(lambda line: not line.endswith(_END_MARKS)),
    "gopher_bullet_lines": _lines(lambda line: line[:1] in "•-"),
    "gopher_ellipsis_lines": _lines(lambda line: line.endswith(("...", "…"))),
    "bullet_sentences": _lines(lambda line: line[:1] in _BULLETS),
    "ellipsis_sentences": _lines(lambda line: line.endswith(_ELLIPSES)),
    "sentences_without_end_mark": _lines(lambda line: not line.endswith(_END_MARKS)),
    "alnum_punct_chars": _matches(r"[^\w\s.,;:!?'\"()\-]+"),
    "symbol_words": _matches(r"#+|\.{3,}|…"),
    "digits": _matches(r"\d+"),
    "bracket_chars": _matches(r"[()\[\]{}]+"),
    "url_chars": _matches(r"https?://\S+"),
    "porn_urls": _matches(r"https?://\S{0,500}porn\S{0,500}", re.IGNORECASE),
    "basic_whitespace_chars": _matches(r"\s{2,}"),
    "hash_chars": _matches(r"#+"),
    "ellipses": _matches(r"\.{3,}|…"),
    "non_symbol_word_chars": _matches(rf"\S{{{_LONG_WORD},}}"),
    "word_chars": _matches(rf"\S{{{_LONG_WORD},}}"),
    "longest_word": _longest_word,
    "words_with_alpha": _words(lambda word: not _has_letter(word)),
    "boilerplate_paragraphs": _lines(lambda line: _POLICIES.search(line) is not None),
    "lorem_ipsum": _matches(r"lorem ipsum", re.IGNORECASE),
    "c4_lorem_ipsum": _matches(r"lorem ipsum", re.IGNORECASE),
    "javascript": _matches(r"javascript", re.IGNORECASE),
    "curly_brackets": _matches(r"[{}]+"),
    "c4_curly_bracket": _matches(r"[{}]+"),
}
