"""CommonCrawlHTMLExtractor: a web page as a document with its language."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, ClassVar

from tamis.errors import TamisError, UsageError
from tamis.failures import is_memory_failure
from tamis.stages.text.download.base.extract import DocumentExtractor
from tamis.stages.text.download.html_extractors import (
    HTMLExtractorAlgorithm,
    JusTextExtractor,
    ResiliparseExtractor,
    TrafilaturaExtractor,
)
from tamis.stages.text.download.html_extractors.utils import get_stop_list_dict
from tamis.stages.text.download.parse_limits import (
    HTML_LIMITS,
    ParseLimits,
    ParseRefused,
    check_html,
    error_name,
    within_cpu_limit,
)
from tamis.stages.text.download.utils import decode_html, lang_detect

log = logging.getLogger("tamis.download")
ALGORITHMS: dict[str, type[HTMLExtractorAlgorithm]] = {
    "justext": JusTextExtractor,
    "resiliparse": ResiliparseExtractor,
    "trafilatura": TrafilaturaExtractor,
}


class CommonCrawlHTMLExtractor(DocumentExtractor):
    """`algorithm`: "justext" (also for None), "resiliparse", "trafilatura", or an object of one's own.

    `limits`: pages beyond them go to quarantine with their URL. `stop_lists`: language (in capitals) -> stop words;
    pages in other languages are left out. By default all that jusText knows.
    """

    kernel_groups: ClassVar[tuple[str, ...]] = ("text", "markup")  # of the language model, and of the limits

    def __init__(
        self,
        algorithm: HTMLExtractorAlgorithm | str | None = None,
        algorithm_kwargs: Mapping[str, Any] | None = None,
        stop_lists: Mapping[str, frozenset[str]] | None = None,
        limits: ParseLimits = HTML_LIMITS,
    ) -> None:
        if isinstance(algorithm, HTMLExtractorAlgorithm):
            if algorithm_kwargs:
                raise UsageError(
                    "html_extraction_kwargs are for an algorithm given by its name; give them to the object"
                )
            self.algorithm = algorithm
        elif algorithm is None or algorithm in ALGORITHMS:
            self.algorithm = ALGORITHMS[algorithm or "justext"](**dict(algorithm_kwargs or {}))
        else:
            raise UsageError(
                f"html_extraction: expected one of {', '.join(ALGORITHMS)} or an object, got {algorithm!r}"
            )
        self.limits = limits
        self._is_loaded = False
        self._stop_lists_option = dict(stop_lists) if stop_lists is not None else None
        self._all: dict[str, frozenset[str]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_all": None, "_is_loaded": False}

    @property
    def stop_lists(self) -> Mapping[str, frozenset[str]]:
        if self._stop_lists_option is not None:
            return self._stop_lists_option
        if self._all is None:
            self._all = get_stop_list_dict()
        return self._all

    def extract(self, record: dict[str, Any]) -> dict[str, Any] | None:
        content = record.get("content")
        if content and len(content) > self.limits.max_bytes:
            return self._refused(record, f"it has {len(content):,} bytes, more than {self.limits.max_bytes:,}")
        html = decode_html(content) if content else None
        if html is None:
            return self._nothing("pages without readable text")
        try:
            n_tags = check_html(html, self.limits)
            self._load()
            language, paragraphs = within_cpu_limit(lambda: self._text(html), self.limits, len(html), n_tags)
        except ParseRefused as exc:
            return self._refused(record, str(exc))
        except Exception as exc:  # parsers raise what they like on pages that no browser would show
            if isinstance(exc, TamisError) or is_memory_failure(exc):
                raise
            return self._nothing(f"pages that cannot be parsed ({error_name(exc)})")
        if language not in self.stop_lists:
            return self._nothing("pages in a language without stop words")
        if not paragraphs:
            return self._nothing("pages without a main part")
        metadata = {name: record.get(name) for name in ("url", "warc_id", "source_id")}
        mark = {"resynchronised": True} if record.get("resynchronised") else {}
        return {**metadata, "language": language, "text": "\n\n".join(paragraphs), **mark}

    def _text(self, html: str) -> list[Any]:
        """Return the language of a page, and the paragraphs of its main part if the language has stop words."""
        language = lang_detect(html)
        if language not in self.stop_lists:
            return [language, None]
        return [language, self.algorithm.extract_text(html, self.stop_lists[language], language)]

    def _load(self) -> None:
        """Load the language model and the libraries in this process, before child processes parse pages.

        Otherwise each child would load them again.
        """
        if not self._is_loaded:
            self._is_loaded = True
            try:
                self.algorithm.extract_text("<html><body><p>a</p></body></html>", frozenset(), lang_detect("a"))
            except TamisError:
                raise
            except Exception:
                log.debug("the parser failed on a page without content", exc_info=True)

    def _refused(self, record: dict[str, Any], why: str) -> dict[str, Any] | None:
        self._refuse(f"page {record.get('url')!r} is not parsed: {why}")
        return None

    def _nothing(self, reason: str) -> dict[str, Any] | None:
        self._skip(reason)
        return None

    def input_columns(self) -> list[str]:
        return ["url", "warc_id", "source_id", "content"]

    def output_columns(self) -> list[str]:
        return ["url", "warc_id", "source_id", "language", "text"]
