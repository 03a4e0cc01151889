"""Scoring and filtering of documents.

Stages (`score_filter.py`): `Score`, `Filter` and `ScoreFilter`. Filters: `heuristic/` (strings, repetition, code),
`fasttext.py`, `histogram.py`, `token.py`. Rule sets, one file per source: `gopher.py`, `c4.py`, `fineweb.py`,
`nemo_curator.py`. Base classes: `doc_filter.py`, `words.py`, `rule_set.py`. `catalogue.py` lists them all.
"""

from typing import TYPE_CHECKING

from tamis._lazy import lazy_attributes
from tamis.stages.text.filters.doc_filter import DocumentFilter, StatisticFilter
from tamis.stages.text.filters.score_filter import Filter, Score, ScoreFilter

if TYPE_CHECKING:
    from tamis.stages.text.filters.heuristic import (
        BoilerPlateStringFilter,
        LengthFilter,
        NonAlphaNumericFilter,
        PunctuationFilter,
        RepeatedLinesFilter,
        WordCountFilter,
    )

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

# Two dozen dataclasses, of which most runs need none: 8 ms of every process.
__getattr__ = lazy_attributes(
    __name__,
    {
        "tamis.stages.text.filters.heuristic": (
            "BoilerPlateStringFilter",
            "LengthFilter",
            "NonAlphaNumericFilter",
            "PunctuationFilter",
            "RepeatedLinesFilter",
            "WordCountFilter",
        )
    },
)
