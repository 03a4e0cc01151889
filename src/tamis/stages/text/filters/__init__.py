"""Scoring and filtering of documents. The filters themselves are in `heuristic`, `token`, `fasttext` and `histogram`."""

from tamis.stages.text.filters.base import DocumentFilter, StatisticFilter
from tamis.stages.text.filters.heuristic import (
    BoilerPlateStringFilter,
    NonAlphaNumericFilter,
    PunctuationFilter,
    RepeatedLinesFilter,
    WordCountFilter,
)
from tamis.stages.text.filters.length import LengthFilter
from tamis.stages.text.filters.score_filter import Filter, Score, ScoreFilter

__all__ = [
    "BoilerPlateStringFilter",
    "DocumentFilter",
    "Filter",
    "LengthFilter",
    "NonAlphaNumericFilter",
    "PunctuationFilter",
    "RepeatedLinesFilter",
    "Score",
    "ScoreFilter",
    "StatisticFilter",
    "WordCountFilter",
]
