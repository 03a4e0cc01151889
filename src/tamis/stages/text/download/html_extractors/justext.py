"""jusText: paragraphs are judged by their length, links and stop words, and by their neighbours."""

from __future__ import annotations

from typing import Any

from tamis.errors import optional
from tamis.stages.text.download.html_extractors.base import HTMLExtractorAlgorithm


class JusTextExtractor(HTMLExtractorAlgorithm):
    """Parameters are jusText's.

    `is_boilerplate`: leave boilerplate out (True), keep it (False), or as the language allows.
    """

    def __init__(
        self,
        length_low: int = 70,
        length_high: int = 200,
        stopwords_low: float = 0.3,
        stopwords_high: float = 0.32,
        max_link_density: float = 0.2,
        max_heading_distance: int = 200,
        no_headings: bool = False,
        is_boilerplate: bool | None = None,
    ) -> None:
        self.length_low, self.length_high = length_low, length_high
        self.stopwords_low, self.stopwords_high = stopwords_low, stopwords_high
        self.max_link_density, self.max_heading_distance = max_link_density, max_heading_distance
        self.no_headings, self.is_boilerplate = no_headings, is_boilerplate

    def extract_text(self, html: str, stop_words: frozenset[str], language: str) -> list[str] | None:
        core = optional("justext.core", "JusTextExtractor", "html")
        return self.texts_of(core.html_to_dom(html), stop_words, language)

    def texts_of(self, tree: Any, stop_words: frozenset[str], language: str) -> list[str]:
        """Return the paragraphs of a page that lxml parsed, in the steps of `justext.justext`."""
        core = optional("justext.core", "JusTextExtractor", "html")
        words = language not in self.NON_SPACED_LANGUAGES
        paragraphs = core.ParagraphMaker.make_paragraphs(core.preprocessor(tree))
        core.classify_paragraphs(
            paragraphs,
            stop_words,
            self.length_low,
            self.length_high,
            self.stopwords_low if words else 0.0,
            self.stopwords_high if words else 0.0,
            self.max_link_density,
            self.no_headings,
        )
        core.revise_paragraph_classification(paragraphs, self.max_heading_distance)
        leave_out = words if self.is_boilerplate is None else self.is_boilerplate
        return [p.text for p in paragraphs if not (leave_out and p.is_boilerplate)]
