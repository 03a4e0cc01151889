"""The base of filters that count words: by compiled statistics, or by a segmenter where words are not set apart by spaces."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from tamis._lazy import pa
from tamis.errors import UsageError
from tamis.stages.text.filters.base import StatisticsFilter
from tamis.stages.text.filters.words import is_segmented, word_splitter


class WordsFilter(StatisticsFilter):
    """Subclasses have a parameter `lang` and say in `score_words` what the statistics mean, word by word."""

    lang: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.lang, str):
            raise UsageError(f"{type(self).__name__}: lang must be a language code such as 'en', got {self.lang!r}")
        if is_segmented(self.lang):
            word_splitter(self.lang)  # a missing segmenter is said now, not in a worker

    def model_check_or_download(self) -> None:
        """Load the segmenter once per machine, before any memory cap is set: the workers share it."""
        word_splitter(self.lang)

    @property
    def statistics(self) -> tuple[str, ...]:
        return () if is_segmented(self.lang) else self.compares

    @abstractmethod
    def score_words(self, text: str, words: list[str]) -> float:
        """Score a text of a language without spaces, by the words of its segmenter."""

    def score_batch(self, texts: pa.Array) -> Any:
        split = word_splitter(self.lang)
        return [self.score_words(text or "", split(text or "")) for text in texts.to_pylist()]
