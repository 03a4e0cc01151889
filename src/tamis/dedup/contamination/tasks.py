"""The index of evaluation sets as the process that drives the passes knows it: its folder, its task, its facts."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from tamis.dedup.contamination.sets import EvaluationSet


def index_folder(work: str) -> str:
    """Return the folder of the index, in that of the files between passes."""
    return os.path.join(work, "evaluation")


@dataclass(frozen=True)
class BuildTask:
    """`sets`: those that are indexed; `words`, `short_words`: of their n-grams; `budget_bytes`: of the run."""

    sets: list[EvaluationSet]
    words: int
    short_words: int
    budget_bytes: int


@dataclass(frozen=True)
class SetFacts:
    """Counts of one set. `files`: path, bytes, SHA-256 and number of rows of each."""

    name: str
    path: str
    fields: list[str]
    files: list[dict[str, Any]] = field(default_factory=list)
    n_items: int = 0
    n_checked: int = 0
    n_short: int = 0
    n_unchecked: int = 0


@dataclass(frozen=True)
class IndexFacts:
    """The contents of index.json. `stat`: of the files of the sets, as they were (sets.stat_of)."""

    words: int
    short_words: int
    n_entries: int
    n_ngrams: int
    directory_bits: int
    fingerprint: str
    stat: list[list[Any]]
    sets: list[SetFacts]
