"""Trafilatura: rules for the main part of a page, with fallbacks."""

from __future__ import annotations

from typing import Any

from tamis.errors import UsageError, optional
from tamis.stages.text.download.html_extractors.base import HTMLExtractorAlgorithm, dense_paragraphs

_OURS = ("config", "options", "settingsfile", "output_format")


class TrafilaturaExtractor(HTMLExtractorAlgorithm):
    """Sizes are trafilatura's settings.

    `extract_kwargs` go to `trafilatura.extract` (favor_precision, include_tables, ...).

    `deduplicate`, on by default, drops what a page repeats; what other pages said does not count.
    """

    def __init__(
        self,
        required_stopword_density: float = 0.32,
        min_extracted_size: int = 250,
        min_extracted_comm_size: int = 1,
        min_output_size: int = 1,
        min_output_comm_size: int = 1,
        max_tree_size: int | None = None,
        min_duplcheck_size: int = 100,
        max_repetitions: int = 2,
        **extract_kwargs: Any,
    ) -> None:
        refused = sorted(set(extract_kwargs) & set(_OURS))
        if refused:
            raise UsageError(
                f"TrafilaturaExtractor: {', '.join(refused)} cannot be given; sizes are parameters of its own"
            )
        self.required_stopword_density = required_stopword_density
        self.sizes = {
            "min_extracted_size": min_extracted_size,
            "min_extracted_comm_size": min_extracted_comm_size,
            "min_output_size": min_output_size,
            "min_output_comm_size": min_output_comm_size,
            "max_tree_size": "" if max_tree_size is None else max_tree_size,
            "min_duplcheck_size": min_duplcheck_size,
            "max_repetitions": max_repetitions,
        }
        self.extract_kwargs = {"deduplicate": True, **extract_kwargs}
        self._config: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_config": None}

    def extract_text(self, html: str, stop_words: frozenset[str], language: str) -> list[str] | None:
        extract = optional("trafilatura", "TrafilaturaExtractor", "html").extract
        if self._config is None:
            self._config = self._make_config()
        if self.extract_kwargs.get("deduplicate"):
            self._forget_other_pages()
        text = extract(html, config=self._config, **self.extract_kwargs)
        return None if text is None else dense_paragraphs(text, stop_words, self.required_stopword_density, language)

    def _forget_other_pages(self) -> None:
        """Clear the memory of earlier pages, so that repetitions are detected within a page only.

        Otherwise what `deduplicate` drops would depend on which pages this worker saw before.
        """
        from trafilatura.deduplication import LRU_TEST

        LRU_TEST.clear()
        own = self.extract_kwargs["deduplicate"]  # a memory of the caller's own
        if not isinstance(own, bool) and hasattr(own, "clear"):
            own.clear()

    def _make_config(self) -> Any:
        from copy import deepcopy

        from trafilatura.settings import DEFAULT_CONFIG

        config = deepcopy(DEFAULT_CONFIG)
        for name, value in self.sizes.items():
            config["DEFAULT"][name] = str(value)
        return config
