"""The text statistics that filters compare, by name: a batch computes the union of what its filters need, once.

`PASSES` lists the loops over the text; each kernel module declares the statistics that it counts, in the order of its
columns, with their meaning (`COUNTS`). `statistics(parts, names)` runs only the passes that the names need. Lengths
are code points, words are str.split(), a null document counts as the empty text. `tests/reference/text_twin.py` is
the specification. Memory: 8 bytes per row and name, and scratch of at most some 80 MB for one very long document.

To add a statistic: count it in a kernel, add its name to the kernel's COUNTS, and compute it in the twin. To add a
pass: also add a line to PASSES.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from tamis.errors import UsageError
from tamis.kernels.buffers import StringBuffers
from tamis.kernels.text import char_counts, line_stats, paragraph_stats, split_lines, url_stats, word_stats
from tamis.kernels.text._ngrams import DUPLICATE, GOPHER_DUPLICATE, GOPHER_TOP, MAX_N, TOP
from tamis.kernels.text.long_repetition import long_fractions
from tamis.kernels.text.word_stats import MAX_BYTES, MAX_WORDS, FractionRequest

Numbers = NDArray[np.int64] | NDArray[np.float64]


@dataclass(frozen=True)
class Pass:
    """A loop over the texts: its statistics with their meaning, by column, and the function that runs it.

    The function takes data, starts and ends, and the line feeds of each document if it sizes its tables by them. Two
    passes have none: `statistics` itself runs the first, whose counts size the tables of others, and that over words.
    """

    counts: Mapping[str, str]
    run: Callable[..., dict[str, NDArray[np.int64]]] | None = None
    needs_newlines: bool = False


PASSES: dict[str, Pass] = {
    "characters": Pass(char_counts.COUNTS),
    "words": Pass(word_stats.COUNTS),
    "lines": Pass(line_stats.COUNTS, line_stats.line_counts, True),
    "split lines": Pass(split_lines.COUNTS, split_lines.split_line_counts),
    "paragraphs": Pass(paragraph_stats.COUNTS, paragraph_stats.paragraph_counts, True),
    "gopher paragraphs": Pass(
        paragraph_stats.GOPHER_COUNTS, partial(paragraph_stats.paragraph_counts, stripped=True), True
    ),
    "phrases": Pass(paragraph_stats.PHRASE_COUNTS, paragraph_stats.phrase_counts),
    "urls": Pass(url_stats.COUNTS, url_stats.url_counts),
    "wide urls": Pass(url_stats.WIDE_COUNTS, partial(url_stats.url_counts, wide=True)),
}
N_GRAMS = "n-grams"
FOR_PASSES = ("chars", "words", "newlines")  # the sizes of the tables of other passes

# Differences of two counts of one pass.
_DIFFERENCES = {
    "word_chars": ("chars", "whitespace_chars", "Characters in words: all that are not whitespace."),
    "unique_sentences": ("sentences", "duplicate_sentences", "Different ones among the lines that are not blank."),
    "unique_sentence_chars": ("sentence_chars", "duplicate_sentence_chars", "Characters of the different ones."),
    "unique_paragraphs": ("paragraphs", "duplicate_paragraphs", "Different ones among the paragraphs."),
    "unique_paragraph_chars": ("paragraph_chars", "duplicate_paragraph_chars", "Characters of the different ones."),
}
# Statistics for every n from 2 to MAX_N.
_N_GRAM_PATTERNS = {
    "top_{}_gram_fraction": (
        TOP,
        "Share of characters that text.replace removes with the most frequent {}-gram (of several, "
        "the first); 1 if none.",
    ),
    "duplicate_{}_gram_fraction": (
        DUPLICATE,
        "Share of characters in {}-grams that occurred before, overlaps counted once; 1 with fewer words.",
    ),
    "gopher_top_{}_gram_fraction": (
        GOPHER_TOP,
        "Length of the most frequent {}-gram (of several, the first) times its count, by characters; "
        "0 with fewer words.",
    ),
    "gopher_duplicate_{}_gram_fraction": (
        GOPHER_DUPLICATE,
        "Share of characters in {}-grams, joined without spaces, that were met before; each is skipped once counted.",
    ),
}
_N_GRAM_STATISTICS = {
    pattern.format(n): (kind, n, meaning.format(n))
    for pattern, (kind, meaning) in _N_GRAM_PATTERNS.items()
    for n in range(2, MAX_N + 1)
}

STATISTICS: dict[str, str] = {
    "is_null": "1 where the document is null, else 0.",
    "bytes": "Length of the text in UTF-8 bytes.",
    **{name: meaning for pass_ in PASSES.values() for name, meaning in pass_.counts.items()},
    **{name: meaning for name, (_, _, meaning) in _DIFFERENCES.items()},
    **{name: meaning for name, (_, _, meaning) in _N_GRAM_STATISTICS.items()},
}
"""Every statistic with its meaning."""


@lru_cache(maxsize=1000)
def pass_of(statistic: str) -> str:
    """Return the name of the pass that computes a statistic."""
    if statistic in _N_GRAM_STATISTICS:
        return N_GRAMS
    counted = _DIFFERENCES[statistic][0] if statistic in _DIFFERENCES else statistic
    return next((name for name, pass_ in PASSES.items() if counted in pass_.counts), "characters")


def statistics(
    parts: StringBuffers,
    names: Collection[str],
    rows: NDArray[np.int64] | None = None,
    known: Mapping[str, NDArray[np.int64]] | None = None,
) -> dict[str, Numbers]:
    """Return one array per name, for all documents or only `rows` (those that no filter dropped).

    `known`: statistics of the same documents from an earlier call; if they include FOR_PASSES, characters are not
    counted again.
    """
    requested = set(names)
    _check(requested)
    starts, ends = parts.spans(rows)
    needed = requested | {count for name in requested & _DIFFERENCES.keys() for count in _DIFFERENCES[name][:2]}
    grams = {name: _N_GRAM_STATISTICS[name][:2] for name in requested & _N_GRAM_STATISTICS.keys()}
    passes = [pass_ for pass_ in PASSES.values() if needed & pass_.counts.keys()]
    columns: dict[str, Numbers] = {}
    if "is_null" in requested:
        columns["is_null"] = _nulls(parts, rows)
    if "bytes" in requested:
        columns["bytes"] = ends - starts
    counts: dict[str, NDArray[np.int64]] = {}
    if grams or needed & char_counts.COUNTS.keys() or any(pass_.needs_newlines for pass_ in passes):
        if known and {*FOR_PASSES, *(needed & char_counts.COUNTS.keys())} <= known.keys():
            counts = dict(known)
        else:
            counts = char_counts.char_counts(parts.data, starts, ends)
    for pass_ in passes:
        if pass_.run is not None:
            newlines = (counts["newlines"],) if pass_.needs_newlines else ()
            columns.update(pass_.run(parts.data, starts, ends, *newlines))
    if grams or needed & word_stats.COUNTS.keys():
        columns.update(_words(parts, starts, ends, counts, needed, grams))
    columns.update(counts)
    for name in requested & _DIFFERENCES.keys():
        minuend, subtrahend, _ = _DIFFERENCES[name]
        columns[name] = columns[minuend] - columns[subtrahend]
    return {name: columns[name] for name in names}


def _nulls(parts: StringBuffers, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Return 1 for each document that is null, 0 for the others; of `rows` if given."""
    nulls = np.zeros(parts.n_rows, np.int64) if parts.validity is None else (~parts.validity).astype(np.int64)
    return nulls if rows is None else nulls[rows]


def _words(
    parts: StringBuffers,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    counts: dict[str, NDArray[np.int64]],
    needed: set[str],
    grams: dict[str, tuple[int, int]],
) -> dict[str, Numbers]:
    request = FractionRequest(
        symbols=bool(needed & {"non_symbol_words", "non_symbol_word_chars"}),
        last_n=max((n for kind, n in grams.values() if kind != GOPHER_DUPLICATE), default=0),
        duplicates=sum(1 << n for kind, n in grams.values() if kind == DUPLICATE),
        tops=sum(1 << n for kind, n in grams.values() if kind == TOP),
        joins=sum(1 << n for kind, n in grams.values() if kind == GOPHER_DUPLICATE),
    )
    nothing = np.zeros(starts.size, np.int64)
    n_words, n_chars = counts.get("words", nothing), counts.get("chars", nothing)
    counted, fractions = word_stats.word_counts(parts.data, starts, ends, n_words, n_chars, request)
    columns: dict[str, Numbers] = {**counted}
    if grams:
        long = (n_words > MAX_WORDS) | ((ends - starts > MAX_BYTES) & (n_words > 0))
        for row in np.flatnonzero(long).tolist():
            begin, end = int(starts[row]), int(ends[row])
            fractions[row] = long_fractions(parts.data, begin, end, int(n_words[row]), int(n_chars[row]), request)
        for name, (kind, n) in grams.items():
            columns[name] = np.ascontiguousarray(fractions[:, kind + n])
    return columns


def _check(names: set[str]) -> None:
    unknown = sorted(names - STATISTICS.keys())
    if unknown:
        near = difflib.get_close_matches(unknown[0], STATISTICS, 3)
        raise UsageError(
            f"statistics: expected names of text statistics, got {unknown[0]!r}; "
            + (f"did you mean {' or '.join(near)}? " if near else "")
            + "tamis.kernels.text.text_stats.STATISTICS lists all"
        )
