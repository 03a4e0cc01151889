"""Scoring and filtering of documents. The filters themselves are in `heuristic`, `token`, `fasttext` and `histogram`."""

from tamis.stages.text.filters.base import DocumentFilter, StatisticFilter
from tamis.stages.text.filters.score_filter import Filter, Score, ScoreFilter

__all__ = ["DocumentFilter", "Filter", "Score", "ScoreFilter", "StatisticFilter"]
