"""Extractors of the main text of a page: functions of three libraries by name, or one of the user's own.

They differ from the classes in `stages/text/download/html_extractors`, which keep paragraphs by their share of stop
words, as NeMo Curator does: here the text is that of the library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tamis.errors import UsageError, optional
from tamis.stages.text.download.html_extractors.base import HTMLExtractorAlgorithm

Extract = Callable[[str], "str | None"]
"""From a page to its text. One that has `of_bytes` takes pages in UTF-8, which saves decoding them."""
_SAMPLE = "<html><body><main><p>A page to load the library with.</p></main></body></html>"


@dataclass
class Resiliparse:
    """`resiliparse.extract.html2text.extract_plain_text`; options are its parameters."""

    options: Mapping[str, Any] = field(default_factory=dict)
    defaults = {"main_content": True, "alt_texts": False, "links": False}

    def __call__(self, html: str) -> str | None:
        html2text = optional("resiliparse.extract.html2text", "HtmlExtract with resiliparse", "html")
        return str(html2text.extract_plain_text(html, **{**self.defaults, **self.options}))

    def of_bytes(self, page: bytes) -> str | None:
        """Return the text of a page in UTF-8."""
        html2text = optional("resiliparse.extract.html2text", "HtmlExtract with resiliparse", "html")
        tree = optional("resiliparse.parse.html", "HtmlExtract with resiliparse", "html").HTMLTree
        page_tree = tree.parse_from_bytes(page, "utf-8")
        return str(html2text.extract_plain_text(page_tree, **{**self.defaults, **self.options}))


@dataclass
class Trafilatura:
    """`trafilatura.extract` with the options of FineWeb; others are its parameters.

    What a page repeats is left out, what other pages said does not count: the result depends on nothing but the page.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    defaults = {"favor_precision": True, "include_comments": False, "deduplicate": True}

    def __call__(self, html: str) -> str | None:
        extract = optional("trafilatura", "HtmlExtract with trafilatura", "html").extract
        options = {**self.defaults, **self.options}
        if options["deduplicate"]:
            from trafilatura.deduplication import LRU_TEST

            LRU_TEST.clear()
        text = extract(html, **options)
        return None if text is None else str(text)


@dataclass
class JusText:
    """`justext.justext` with the stop words of `language`, or of the language that is detected (None)."""

    options: Mapping[str, Any] = field(default_factory=dict)
    _stop_words: dict[str, frozenset[str]] = field(default_factory=dict, repr=False)

    def __call__(self, html: str) -> str | None:
        from tamis.stages.text.download.html_extractors import JusTextExtractor
        from tamis.stages.text.download.html_extractors.utils import get_stop_list_dict
        from tamis.stages.text.download.utils import lang_detect

        options = dict(self.options)
        language = options.pop("language", None)
        language = lang_detect(html) if language is None else str(language).upper().replace(" ", "_")
        if not self._stop_words:
            self._stop_words.update(get_stop_list_dict())
        if language not in self._stop_words:
            return None
        paragraphs = JusTextExtractor(**options).extract_text(html, self._stop_words[language], language)
        return None if paragraphs is None else "\n\n".join(paragraphs)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stop_words": {}}


@dataclass
class ByAlgorithm:
    """An algorithm of NeMo Curator's interface: it is given the stop words of the language that is detected."""

    algorithm: HTMLExtractorAlgorithm
    _stop_words: dict[str, frozenset[str]] = field(default_factory=dict, repr=False)

    def __call__(self, html: str) -> str | None:
        from tamis.stages.text.download.html_extractors.utils import get_stop_list_dict
        from tamis.stages.text.download.utils import lang_detect

        if not self._stop_words:
            self._stop_words.update(get_stop_list_dict())
        language = lang_detect(html)
        paragraphs = self.algorithm.extract_text(html, self._stop_words.get(language, frozenset()), language)
        return None if paragraphs is None else "\n\n".join(paragraphs)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stop_words": {}}


EXTRACTORS: dict[str, Callable[[Mapping[str, Any]], Extract]] = {
    "resiliparse": Resiliparse,
    "trafilatura": Trafilatura,
    "justext": JusText,
}


def extractor_of(extractor: Any, options: Mapping[str, Any] | None, who: str) -> Extract:
    """Return what extracts the text of a page: by name with options, an algorithm, or a function of the user's."""
    if isinstance(extractor, str):
        if extractor not in EXTRACTORS:
            raise UsageError(
                f"{who}: extractor: expected one of {', '.join(EXTRACTORS)}, or a function, got {extractor!r}"
            )
        return EXTRACTORS[extractor](dict(options or {}))
    if options:
        raise UsageError(f"{who}: extractor_options are for an extractor given by its name; give them to your own")
    if isinstance(extractor, HTMLExtractorAlgorithm):
        return ByAlgorithm(extractor)
    if callable(extractor):
        function: Extract = extractor
        return function
    raise UsageError(f"{who}: extractor: expected one of {', '.join(EXTRACTORS)}, or a function, got {extractor!r}")


def load_library(extract: Extract) -> None:
    """Let an extractor of ours load its library by a first call; an absent library is an error at this point."""
    if isinstance(extract, (Resiliparse, Trafilatura, JusText, ByAlgorithm)):
        extract(_SAMPLE)
    if isinstance(extract, Resiliparse):
        extract.of_bytes(_SAMPLE.encode())
