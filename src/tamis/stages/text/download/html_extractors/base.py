"""Base class of extraction algorithms, and the share of stop words that separates prose from menus."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

from tamis.stages.text.utils.languages import WITHOUT_SPACES


class HTMLExtractorAlgorithm(ABC):
    """Finds the text of a page."""

    NON_SPACED_LANGUAGES: ClassVar[frozenset[str]] = WITHOUT_SPACES

    @abstractmethod
    def extract_text(self, html: str, stop_words: frozenset[str], language: str) -> list[str] | None:
        """Return the paragraphs of the main part; None or [] if there are none.

        `language`: its English name in capitals.
        """


def dense_paragraphs(text: str, stop_words: frozenset[str], density: float, language: str) -> list[str]:
    r"""Return the lines of `text` in which at least this share of the words are stop words.

    Returns all lines if words cannot be separated (languages without spaces).

    >>> text = "Home Login Impressum\nThis is the way in which it is done."
    >>> dense_paragraphs(text, frozenset({"this", "is", "the", "in", "it"}), 0.3, "ENGLISH")
    ['This is the way in which it is done.']
    """
    lines: Iterable[str] = (line.strip() for line in text.splitlines())
    if language in WITHOUT_SPACES:
        return [line for line in lines if line]
    return [line for line in lines if line and _density(line, stop_words) >= density]


def _density(line: str, stop_words: frozenset[str]) -> float:
    """Return the share of words that are stop words as they are written: the limit is meant for this count."""
    words = line.split()
    return sum(word in stop_words for word in words) / len(words)
