"""Resiliparse: a fast parser, with rules for the main content of a page."""

from __future__ import annotations

from tamis.errors import optional
from tamis.stages.text.download.html_extractors.base import HTMLExtractorAlgorithm, dense_paragraphs


class ResiliparseExtractor(HTMLExtractorAlgorithm):
    """`required_stopword_density`: the share of stop words in a line that is kept."""

    def __init__(
        self, required_stopword_density: float = 0.32, main_content: bool = True, alt_texts: bool = False
    ) -> None:
        self.required_stopword_density = required_stopword_density
        self.main_content, self.alt_texts = main_content, alt_texts

    def extract_text(self, html: str, stop_words: frozenset[str], language: str) -> list[str] | None:
        html2text = optional("resiliparse.extract.html2text", "ResiliparseExtractor", "html")
        text = html2text.extract_plain_text(html, main_content=self.main_content, alt_texts=self.alt_texts, links=False)
        return dense_paragraphs(text, stop_words, self.required_stopword_density, language)
