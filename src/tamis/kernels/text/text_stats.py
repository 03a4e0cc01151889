"""Every statistic that filters compare, by name: a batch computes the union of what its filters need, once.

`statistics(parts, wanted)` runs only the passes that the wanted names need. Lengths are code points, words are
str.split(), a null document counts as the empty text. `tests/reference/text_twin.py` is the specification. Memory: 8 bytes
per row and name, and scratch of at most some 80 MB for one very long document.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tamis.errors import UsageError
from tamis.kernels.buffers import StringBuffers
from tamis.kernels.text._ngrams import DUPLICATE, GOPHER_DUPLICATE, GOPHER_TOP, MAX_N, TOP
from tamis.kernels.text.char_counts import COUNTS as CHAR_COUNTS
from tamis.kernels.text.char_counts import char_counts
from tamis.kernels.text.line_stats import COUNTS as LINE_COUNTS
from tamis.kernels.text.line_stats import line_counts
from tamis.kernels.text.long_repetition import long_fractions
from tamis.kernels.text.paragraph_stats import COUNTS as PARAGRAPH_COUNTS
from tamis.kernels.text.paragraph_stats import PHRASE_COUNTS, paragraph_counts, phrase_counts
from tamis.kernels.text.split_lines import COUNTS as SPLIT_LINE_COUNTS
from tamis.kernels.text.split_lines import split_line_counts
from tamis.kernels.text.url_stats import COUNTS as URL_COUNTS
from tamis.kernels.text.url_stats import url_counts
from tamis.kernels.text.word_stats import COUNTS as WORD_COUNTS
from tamis.kernels.text.word_stats import MAX_BYTES, MAX_WORDS, Wanted, word_counts

Numbers = NDArray[np.int64] | NDArray[np.float64]

STATISTICS: dict[str, str] = {
    "is_null": "1 where the document is null, else 0.",
    "bytes": "Length of the text in UTF-8 bytes.",
    "chars": "Length of the text in characters (code points).",
    "whitespace_chars": "Characters for which str.isspace is true.",
    "basic_whitespace_chars": "Tabs, line feeds, carriage returns, backspaces and spaces: what WhiteSpaceFilter counts.",
    "digits": "Digits 0 to 9: what NumbersFilter counts.",
    "alpha_chars": "Characters for which str.isalpha is true.",
    "alnum_punct_chars": "ASCII letters, digits, line feeds and the marks ? ! , . as NonAlphaNumericFilter counts them.",
    "bracket_chars": "Round, square, curly and angle (U+27E8, U+27E9) brackets.",
    "hash_chars": "Occurrences of #.",
    "ellipses": "Occurrences of ... (not overlapping) and of the character U+2026.",
    "newlines": "Line feeds.",
    "curly_brackets": "Occurrences of {.",
    "words": "Words, as str.split() gives them.",
    "words_with_alpha": "Words with at least one character for which str.isalpha is true.",
    "word_chars": "Characters in words: all that are not whitespace.",
    "longest_word": "Characters of the longest word, 0 without words.",
    "symbol_words": "Words that are an ellipsis mark, or in which runs of # outnumber half the characters.",
    "common_words": "Words equal to one of: the be to of and that have with (lower case only).",
    "distinct_common_words": "How many of those eight words occur.",
    "non_symbol_words": "Words with a character outside Gopher's punctuation list (datatrove's).",
    "non_symbol_word_chars": "Characters of those words.",
    "sentences": "Lines of text.split('\\n') that are not blank.",
    "sentence_chars": "Characters of those lines.",
    "unique_sentences": "Different ones among those lines.",
    "unique_sentence_chars": "Characters of the different ones.",
    "duplicate_sentences": "Lines that occurred before in the document.",
    "duplicate_sentence_chars": "Characters of those: FineWeb's char_duplicates.",
    "bullet_sentences": "Lines that begin, after whitespace, with one of the original's twelve bullets.",
    "ellipsis_sentences": "Lines that end, before whitespace, in one of the original's ellipsis marks, in any case.",
    "sentences_without_end_mark": "Lines that do not end, before whitespace, in one of . ? ! \" '.",
    "terminal_sentences": "Lines whose very last character is sentence-final punctuation of any script (FineWeb's list).",
    "short_sentences": "Lines of at most 30 characters (FineWeb).",
    "line_runs": "Pieces of re.split('\\n+', text): the lines of Gopher's repetition rules.",
    "duplicate_line_runs": "Those pieces that occurred before.",
    "duplicate_line_run_chars": "Characters of those.",
    "split_lines": "Lines of str.splitlines().",
    "gopher_bullet_lines": "Lines of splitlines that begin, after whitespace, with • or -.",
    "gopher_ellipsis_lines": "Lines of splitlines that end, before whitespace, in ... or U+2026.",
    "c4_lines": "Lines of splitlines that C4's rules keep with their usual limits (3 words, words of up to 1000 characters).",
    "c4_sentences": "Sentences in those lines: . ? ! and closing quotes or brackets before whitespace or the line's end.",
    "c4_lorem_ipsum": "1 where C4's rules meet 'lorem ipsum' in a line not removed for another reason before.",
    "c4_curly_bracket": "1 where C4's rules meet { in a line not removed for another reason before.",
    "paragraphs": "Pieces of text.split('\\n\\n').",
    "paragraph_chars": "Characters of those pieces.",
    "unique_paragraphs": "Different ones among those pieces.",
    "unique_paragraph_chars": "Characters of the different ones.",
    "duplicate_paragraphs": "Pieces that occurred before.",
    "duplicate_paragraph_chars": "Characters of those.",
    "boilerplate_paragraphs": "Pieces that contain a policy phrase ('privacy policy', 'use of cookies', ...) in any case.",
    "lorem_ipsum": "1 where the text contains 'lorem ipsum' in any case.",
    "javascript": "1 where the text contains 'javascript' in any case.",
    "gopher_paragraphs": "Pieces of re.split('\\n{2,}', text.strip()).",
    "gopher_duplicate_paragraphs": "Those pieces that occurred before.",
    "gopher_duplicate_paragraph_chars": "Characters of those.",
    "urls": "URLs, by the pattern of the original's release 1.4.0.",
    "url_chars": "Characters of those URLs.",
    "porn_urls": "Those URLs that contain 'porn'.",
    "wide_urls": "URLs, by the pattern of the releases before, which goes on over <>;[]^ and the like.",
    "wide_url_chars": "Characters of those URLs.",
    "wide_porn_urls": "Those URLs that contain 'porn'.",
}
FOR_PASSES = ("chars", "words", "newlines")  # what other passes size their tables by
_KINDS = {
    "top_{}_gram_fraction": (
        TOP,
        "Share of characters that text.replace removes with the most frequent {}-gram (of several, the first); 1 if none.",
    ),
    "duplicate_{}_gram_fraction": (
        DUPLICATE,
        "Share of characters in {}-grams that occurred before, overlaps counted once; 1 with fewer words.",
    ),
    "gopher_top_{}_gram_fraction": (
        GOPHER_TOP,
        "Length of the most frequent {}-gram (of several, the first) times its count, by characters; 0 with fewer words.",
    ),
    "gopher_duplicate_{}_gram_fraction": (
        GOPHER_DUPLICATE,
        "Share of characters in {}-grams, joined without spaces, that were met before; each is skipped once counted.",
    ),
}
_GRAMS: dict[str, tuple[int, int]] = {}
for _pattern, (_kind, _sentence) in _KINDS.items():
    for _n in range(2, MAX_N + 1):
        _GRAMS[_pattern.format(_n)] = _kind, _n
        STATISTICS[_pattern.format(_n)] = _sentence.format(_n)

_UNIQUE = {
    "unique_sentences": ("sentences", "duplicate_sentences"),
    "unique_sentence_chars": ("sentence_chars", "duplicate_sentence_chars"),
    "unique_paragraphs": ("paragraphs", "duplicate_paragraphs"),
    "unique_paragraph_chars": ("paragraph_chars", "duplicate_paragraph_chars"),
    "word_chars": ("chars", "whitespace_chars"),
}


def statistics(
    parts: StringBuffers,
    wanted: Collection[str],
    rows: NDArray[np.int64] | None = None,
    known: Mapping[str, NDArray[np.int64]] | None = None,
) -> dict[str, Numbers]:
    """Return one array per requested name, for all documents or only `rows` (not yet dropped by a filter).

    `known`: statistics of the same documents from an earlier call; with those of FOR_PASSES a pass need not count
    again.
    """
    names = set(wanted)
    _check(names)
    starts, ends = parts.spans(rows)
    needed = names | {source for name in names & _UNIQUE.keys() for source in _UNIQUE[name]}
    grams = {name: _GRAMS[name] for name in names if name in _GRAMS}
    line_names = {*LINE_COUNTS, *PARAGRAPH_COUNTS, *_renamed("gopher_", PARAGRAPH_COUNTS)}
    found: dict[str, Numbers] = {}
    if "is_null" in names:
        null = np.zeros(parts.n_rows, np.int64) if parts.validity is None else (~parts.validity).astype(np.int64)
        found["is_null"] = null if rows is None else null[rows]
    if "bytes" in names:
        found["bytes"] = ends - starts
    counts: dict[str, NDArray[np.int64]] = {}
    if grams or needed & {*CHAR_COUNTS, *line_names}:
        needs = {*FOR_PASSES, *(needed & set(CHAR_COUNTS))}
        counts = dict(known) if known and needs <= known.keys() else char_counts(parts.data, starts, ends)
    passes: list[tuple[Collection[str], str, Callable[..., dict[str, NDArray[np.int64]]]]] = [
        (LINE_COUNTS, "", lambda data, begin, end: line_counts(data, begin, end, counts["newlines"])),
        (PARAGRAPH_COUNTS, "", lambda data, begin, end: paragraph_counts(data, begin, end, counts["newlines"])),
        (
            PARAGRAPH_COUNTS,
            "gopher_",
            lambda data, begin, end: paragraph_counts(data, begin, end, counts["newlines"], True),
        ),
        (PHRASE_COUNTS, "", phrase_counts),
        (URL_COUNTS, "", url_counts),
        (URL_COUNTS, "wide_", partial(url_counts, wide=True)),
        (SPLIT_LINE_COUNTS, "", split_line_counts),
    ]
    for columns, prefix, run in passes:
        if needed & set(_renamed(prefix, columns)):
            found.update({prefix + name: column for name, column in run(parts.data, starts, ends).items()})
    if grams or needed & set(WORD_COUNTS):
        found.update(_words(parts, starts, ends, counts, needed, grams))
    found.update(counts)
    for name in names & _UNIQUE.keys():
        whole, part = _UNIQUE[name]
        found[name] = found[whole] - found[part]
    return {name: found[name] for name in wanted}


def _words(
    parts: StringBuffers,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    counts: dict[str, NDArray[np.int64]],
    needed: set[str],
    grams: dict[str, tuple[int, int]],
) -> dict[str, Numbers]:
    wanted = Wanted(
        symbols=bool(needed & {"non_symbol_words", "non_symbol_word_chars"}),
        last_n=max((n for kind, n in grams.values() if kind != GOPHER_DUPLICATE), default=0),
        duplicates=sum(1 << n for kind, n in grams.values() if kind == DUPLICATE),
        tops=sum(1 << n for kind, n in grams.values() if kind == TOP),
        joins=sum(1 << n for kind, n in grams.values() if kind == GOPHER_DUPLICATE),
    )
    nothing = np.zeros(starts.size, np.int64)
    n_words, n_chars = counts.get("words", nothing), counts.get("chars", nothing)
    columns, fractions = word_counts(parts.data, starts, ends, n_words, n_chars, wanted)
    found: dict[str, Numbers] = {**columns}
    if grams:
        long = (n_words > MAX_WORDS) | ((ends - starts > MAX_BYTES) & (n_words > 0))
        for row in np.flatnonzero(long).tolist():
            begin, end = int(starts[row]), int(ends[row])
            fractions[row] = long_fractions(parts.data, begin, end, int(n_words[row]), int(n_chars[row]), wanted)
        for name, (kind, n) in grams.items():
            found[name] = np.ascontiguousarray(fractions[:, kind + n])
    return found


def _renamed(prefix: str, names: Collection[str]) -> list[str]:
    return [prefix + name for name in names]


def _check(names: set[str]) -> None:
    unknown = sorted(names - STATISTICS.keys())
    if unknown:
        near = difflib.get_close_matches(unknown[0], STATISTICS, 3)
        raise UsageError(
            f"statistics: expected names of text statistics, got {unknown[0]!r}; "
            + (f"did you mean {' or '.join(near)}? " if near else "")
            + "tamis.kernels.text.text_stats.STATISTICS lists all"
        )
