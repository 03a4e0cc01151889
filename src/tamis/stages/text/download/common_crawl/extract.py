"""CommonCrawlHTMLExtractor: a web page as a document with its language."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tamis.errors import TamisError, UsageError
from tamis.formats.faults import is_memory_failure
from tamis.stages.text.download.base.extract import DocumentExtractor
from tamis.stages.text.download.html_extractors import (
    HTMLExtractorAlgorithm,
    JusTextExtractor,
    ResiliparseExtractor,
    TrafilaturaExtractor,
)
from tamis.stages.text.download.html_extractors.utils import get_stop_list_dict
from tamis.stages.text.download.utils import decode_html, lang_detect

ALGORITHMS: dict[str, type[HTMLExtractorAlgorithm]] = {
    "justext": JusTextExtractor,
    "resiliparse": ResiliparseExtractor,
    "trafilatura": TrafilaturaExtractor,
}


class CommonCrawlHTMLExtractor(DocumentExtractor):
    """`algorithm`: "justext" (also for None), "resiliparse", "trafilatura", or an object of one's own.

    `stop_lists`: language (in capitals) -> stop words; pages in other languages are left out. By default all that jusText knows.
    """

    kernel_groups: ClassVar[tuple[str, ...]] = ("text",)  # of the language model

    def __init__(
        self,
        algorithm: HTMLExtractorAlgorithm | str | None = None,
        algorithm_kwargs: Mapping[str, Any] | None = None,
        stop_lists: Mapping[str, frozenset[str]] | None = None,
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
        self._given = dict(stop_lists) if stop_lists is not None else None
        self._all: dict[str, frozenset[str]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_all": None}

    @property
    def stop_lists(self) -> Mapping[str, frozenset[str]]:
        if self._given is not None:
            return self._given
        if self._all is None:
            self._all = get_stop_list_dict()
        return self._all

    def extract(self, record: dict[str, Any]) -> dict[str, Any] | None:
        html = decode_html(record["content"]) if record.get("content") else None
        if html is None:
            return self._nothing("pages without readable text")
        language = lang_detect(html)
        if language not in self.stop_lists:
            return self._nothing("pages in a language without stop words")
        try:
            paragraphs = self.algorithm.extract_text(html, self.stop_lists[language], language)
        except Exception as exc:  # parsers raise what they like on pages that no browser would show
            if isinstance(exc, TamisError) or is_memory_failure(exc):
                raise
            return self._nothing(f"pages that cannot be parsed ({type(exc).__name__})")
        if not paragraphs:
            return self._nothing("pages without a main part")
        kept = {name: record.get(name) for name in ("url", "warc_id", "source_id")}
        mark = {"resynchronised": True} if record.get("resynchronised") else {}
        return {**kept, "language": language, "text": "\n\n".join(paragraphs), **mark}

    def _nothing(self, reason: str) -> dict[str, Any] | None:
        self._skip(reason)
        return None

    def input_columns(self) -> list[str]:
        return ["url", "warc_id", "source_id", "content"]

    def output_columns(self) -> list[str]:
        return ["url", "warc_id", "source_id", "language", "text"]
