"""Extractors of the main text of a page: functions of three libraries by name, or one of the user's own.

They differ from the classes in `stages/text/download/html_extractors`, which keep paragraphs by their share of stop
words, as NeMo Curator does: here the text is that of the library.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tamis.errors import TamisError, UsageError, optional
from tamis.failures import is_memory_failure
from tamis.stages.text.download.html_extractors.base import HTMLExtractorAlgorithm

Extract = Callable[[str], "str | None"]
"""From a page to its text. One that has `of_bytes` takes pages in UTF-8, which saves decoding them."""
_SENTENCE_ENDS = (".", "!", "?", "\u2026", ":", "\u3002", "\uff01", "\uff1f", "\u0964", "\u061f", "\u06d4")
_PROSE_WORDS = 5
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
        return self.of_tree(html, html)

    def of_tree(self, tree: Any, html: str) -> str | None:
        """Return the text of a page that lxml parsed, or that is to be parsed."""
        extract = optional("trafilatura", "HtmlExtract with trafilatura", "html").extract
        options = {**self.defaults, **self.options}
        if options["deduplicate"]:
            from trafilatura.deduplication import LRU_TEST

            LRU_TEST.clear()
        text = extract(tree, **options)
        return None if text is None else str(text)


@dataclass
class JusText:
    """`justext.justext` with the stop words of `language`, or of the language that is detected (None)."""

    options: Mapping[str, Any] = field(default_factory=dict)
    _stop_words: dict[str, frozenset[str]] = field(default_factory=dict, repr=False)

    def __call__(self, html: str) -> str | None:
        return self.of_tree(html, html)

    def of_tree(self, tree: Any, html: str) -> str | None:
        """Return the text of a page that lxml parsed; `html` is the same page, for its language."""
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
        algorithm, stop_words = JusTextExtractor(**options), self._stop_words[language]
        if isinstance(tree, str):
            return "\n\n".join(algorithm.extract_text(tree, stop_words, language) or [])
        return "\n\n".join(algorithm.texts_of(tree, stop_words, language))

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


@dataclass
class BestOf:
    """Several extractors, of whose texts the best is kept: that with most words in lines of prose.

    A line of prose has at least five words and ends with a mark that ends a sentence. Of equal texts the one is kept
    whose extractor is named first, and a text without such lines is better than none. Extractors that work on trees of
    lxml share one parse. One that raises gives no text, unless all do.
    """

    extractors: Mapping[str, Extract]
    kept: dict[str, int] = field(default_factory=dict, repr=False)
    """Number of texts kept since the last `take_kept`, by extractor."""

    def __call__(self, html: str) -> str | None:
        tree: Any = None
        best, best_key, errors = None, (-1, -1), []
        for name, extract in self.extractors.items():
            of_tree = getattr(extract, "of_tree", None)
            if of_tree is not None and tree is None:
                tree = _parse(html)
            try:
                text = extract(html) if of_tree is None or tree is None else of_tree(copy.deepcopy(tree), html)
            except Exception as exc:
                if isinstance(exc, TamisError) or is_memory_failure(exc):
                    raise
                errors.append(exc)
                continue
            key = (n_prose_words(text), min(1, len(text))) if text else (0, 0)
            if key > best_key:
                best, best_key, best_name = text, key, name
        if len(errors) == len(self.extractors):
            raise errors[0]
        best = best or None
        if best is not None:
            self.kept[best_name] = self.kept.get(best_name, 0) + 1
        return best

    def take_kept(self) -> dict[str, int]:
        """Return the counts and reset them."""
        counts, self.kept = self.kept, {}
        return counts


def n_prose_words(text: str) -> int:
    """Return the words in lines that are prose, as `BestOf` counts them.

    >>> n_prose_words("This is a line of prose.")
    6
    """
    lines = (line.rstrip("\"'\u201d\u2019\u00bb) \t\r") for line in text.split("\n"))
    counts = (len(line.split()) for line in lines if line.endswith(_SENTENCE_ENDS))
    return sum(n for n in counts if n >= _PROSE_WORDS)


def _parse(html: str) -> Any:
    """Return the page as a tree of lxml, None if it is none."""
    return optional("trafilatura.utils", "HtmlExtract with several extractors", "html").load_html(html)


EXTRACTORS: dict[str, Callable[[Mapping[str, Any]], Extract]] = {
    "resiliparse": Resiliparse,
    "trafilatura": Trafilatura,
    "justext": JusText,
}


def extractor_of(extractor: Any, options: Mapping[str, Any] | None, owner: str) -> Extract:
    """Return what extracts the text of a page: by name with options, an algorithm, or a function of the user's."""
    if isinstance(extractor, (list, tuple)):
        return _best_of(extractor, options, owner)
    if isinstance(extractor, str):
        if extractor not in EXTRACTORS:
            raise UsageError(
                f"{owner}: extractor: expected one of {', '.join(EXTRACTORS)}, or a function, got {extractor!r}"
            )
        return EXTRACTORS[extractor](dict(options or {}))
    if options:
        raise UsageError(f"{owner}: extractor_options are for an extractor given by its name; give them to your own")
    if isinstance(extractor, HTMLExtractorAlgorithm):
        return ByAlgorithm(extractor)
    if callable(extractor):
        function: Extract = extractor
        return function
    raise UsageError(f"{owner}: extractor: expected one of {', '.join(EXTRACTORS)}, or a function, got {extractor!r}")


def _best_of(extractors: Sequence[Any], options: Mapping[str, Any] | None, owner: str) -> BestOf:
    """Return several extractors as one; `options`: those of each, by its name."""
    options = options or {}
    names = [one if isinstance(one, str) else getattr(one, "__name__", type(one).__name__) for one in extractors]
    if len(names) < 2 or len(set(names)) < len(names):
        raise UsageError(f"{owner}: extractor: expected two or more different ones in the list, got {names}")
    unknown = sorted(set(options) - set(names))
    if unknown:
        raise UsageError(
            f"{owner}: extractor_options: with several extractors, options go by the name of one of them "
            f"({', '.join(names)}), got {unknown[0]!r}"
        )
    return BestOf(
        {name: extractor_of(one, options.get(name), owner) for name, one in zip(names, extractors, strict=True)}
    )


def parts_of(extract: Extract) -> list[Extract]:
    """Return the extractors that an extractor consists of: itself, unless it is several."""
    return list(extract.extractors.values()) if isinstance(extract, BestOf) else [extract]


def load_library(extract: Extract) -> None:
    """Have a built-in extractor load its library by a first call, which fails if the library is absent."""
    if isinstance(extract, BestOf):
        for one in parts_of(extract):
            load_library(one)
        _parse(_SAMPLE)
        return
    if isinstance(extract, (Resiliparse, Trafilatura, JusText, ByAlgorithm)):
        extract(_SAMPLE)
    if isinstance(extract, Resiliparse):
        extract.of_bytes(_SAMPLE.encode())
