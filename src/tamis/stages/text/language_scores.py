"""Thresholds of language scores: a table of them, and the rule of FineWeb2 that makes one from the data.

A first pass counts, for each language, how many documents have which score, in 100 equal classes: a histogram, however
many documents there are. The threshold of a language is max(0.3, min(0.9, median - sigma)) of its scores.
"""

from __future__ import annotations

import ast
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tamis.errors import UsageError
from tamis.sizes import is_number

N_CLASSES = 100
LOWEST, HIGHEST = 0.3, 0.9
DEFAULT = "default"
_MAX_BYTES = 4 << 20
_PLAIN = re.compile(r"\[([0-9][0-9.e-]*), '([A-Za-z_-]*)'\]")


class ScoreHistograms:
    """Histogram of the language scores of documents, by language."""

    def __init__(self) -> None:
        self.counts: dict[str, list[int]] = {}

    def add(self, pairs: Iterable[tuple[float, str]]) -> None:
        """Count (score, language) of documents."""
        for score, language in pairs:
            classes = self.counts.setdefault(language, [0] * N_CLASSES)
            classes[min(N_CLASSES - 1, max(0, int(score * N_CLASSES)))] += 1

    def thresholds(self, min_documents: int = 1) -> dict[str, float]:
        """Return the threshold of each language that has so many documents."""
        return {
            language: threshold_of(classes)
            for language, classes in sorted(self.counts.items())
            if sum(classes) >= min_documents
        }


def threshold_of(classes: list[int]) -> float:
    """Return max(0.3, min(0.9, median - sigma)) of scores that are counted in equal classes.

    >>> threshold_of([0] * 95 + [10] + [0] * 4), threshold_of([5] * 50 + [0] * 50)
    (0.9, 0.3)
    """
    n = sum(classes)
    if not n:
        return LOWEST
    centres = [(i + 0.5) / N_CLASSES for i in range(N_CLASSES)]
    mean = sum(c * k for c, k in zip(centres, classes, strict=True)) / n
    variance = sum((c - mean) ** 2 * k for c, k in zip(centres, classes, strict=True)) / n
    seen, median = 0, centres[-1]
    for centre, k in zip(centres, classes, strict=True):
        seen += k
        if 2 * seen >= n:
            median = centre
            break
    return round(max(LOWEST, min(HIGHEST, median - math.sqrt(variance))), 4)


def read_thresholds(table: Mapping[str, Any] | str, owner: str) -> dict[str, float]:
    """Return a table of thresholds by language: a mapping, or a file of YAML or JSON with one.

    "default" covers all languages that it does not name; without it they have none, and go.
    """
    if isinstance(table, (str, os.PathLike)):
        table = _read(os.fspath(table), owner)
    if not isinstance(table, Mapping) or not table:
        raise UsageError(
            f"{owner}: min_scores: expected thresholds by language, such as {{eng_Latn: 0.8, default: 0.5}}"
        )
    wrong = [name for name, value in table.items() if not is_number(value) or not 0 <= value <= 1]
    if wrong:
        raise UsageError(f"{owner}: min_scores: {wrong[0]}: expected a number from 0 to 1, got {table[wrong[0]]!r}")
    return {str(name): float(value) for name, value in table.items()}


def _read(path: str, owner: str) -> dict[str, Any]:
    from tamis.yaml_text import fields_of

    try:
        if os.path.getsize(path) > _MAX_BYTES:
            raise UsageError(f"{owner}: min_scores: {path} is larger than {_MAX_BYTES:,} bytes")
        return {name: node.value for name, node in fields_of(path).items()}
    except OSError as exc:
        raise UsageError(f"{owner}: min_scores: {path} cannot be read: {exc.strerror or exc}") from exc


def parse_score(score: Any) -> tuple[float, str]:
    """Parse a score, which may come from a file, into (probability, language), without evaluating it as code."""
    try:
        if not isinstance(score, str) or len(score) > 200:
            raise ValueError
        if plain := _PLAIN.fullmatch(score):  # nearly all; a Python literal would take ten times as long
            return float(plain[1]), plain[2]
        value, label = ast.literal_eval(score)
        return float(value), str(label)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise UsageError(
            f"FastTextLangId: expected a score such as \"[0.97, 'en']\", got {str(score)[:80]!r}"
        ) from None


def thresholds_of_run(output: str, field: str = "language", min_documents: int = 100) -> dict[str, float]:
    """Return the threshold of each language that has `min_documents` in the JSONL files of a finished run.

    `field` has score and language, as LanguageFilter(min_score=0, language_field=...) writes them: a first pass that
    drops nothing. The result is a table for `min_scores`; UsageError if no language has as many documents.
    """
    from tamis.formats.compression.streams import StreamReader
    from tamis.formats.input_files.listing import list_files
    from tamis.formats.registry import codecs_of, suffixes

    histograms = ScoreHistograms()
    endings = tuple(suffix + codec for suffix in suffixes("jsonl") for codec in codecs_of(suffix))
    for path in list_files(output, endings).paths:
        with StreamReader.open(path) as stream:
            for line in _lines(stream.read):
                score = json.loads(line).get(field)
                if score is not None:
                    histograms.add([parse_score(score)])
    thresholds = histograms.thresholds(min_documents)
    if not thresholds:
        most = max(((sum(classes), name) for name, classes in histograms.counts.items()), default=None)
        found = f"no document has the field {field!r}" if most is None else f"{most[1]} has most: {most[0]:,}"
        raise UsageError(f"{output}: no language has {min_documents:,} documents, the least for a threshold; {found}")
    return thresholds


def _lines(read: Callable[[int], bytes]) -> Iterator[bytes]:
    pending = b""
    while data := read(1 << 20):
        *lines, pending = (pending + data).split(b"\n")
        yield from (line for line in lines if line.strip())
    if pending.strip():
        yield pending
