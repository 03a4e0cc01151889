"""Tables of choosing and mixing for the report: scores, buckets, best documents, mixes (JSON in `duplicates/`).

The solvers of deduplication write these files, the report reads them. They are not trusted when read: a file that is
too large or damaged is left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import field
from pathlib import Path
from typing import Any, TypeVar

from tamis._dataclasses import dataclass
from tamis.engine.wire import Garbled, from_json, to_json
from tamis.errors import RunConflict
from tamis.files import read_json, write_json

SCORES_FILE, BUCKETS_FILE, TOP_FILE, MIX_FILE = "scores.json", "buckets.json", "top.json", "mix.json"
_MAX_FILES = 10
_MAX_BYTES = 4_000_000
_T = TypeVar("_T")


@dataclass(frozen=True)
class ScoreRange:
    """A score: how many documents have it, and its range and mean over them; None where no document has it."""

    name: str
    n: int = 0
    low: float | None = None
    high: float | None = None
    mean: float | None = None


@dataclass(frozen=True)
class BucketGroup:
    """The buckets of one group, from the lowest scores to the highest. `edges`: between two buckets each."""

    group: str
    n_documents: list[int]
    weight: list[int]
    edges: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class BucketTable:
    """The buckets of a run. `weight`: the measure that they have about equal parts of."""

    weight: str
    scores: list[str]
    n_without_score: int
    groups: list[BucketGroup]


@dataclass(frozen=True)
class TopChoice:
    """The best documents of a run. `lowest_score`: of those kept; None if all or none are."""

    scores: list[str]
    weight: str
    n_kept: int
    lowest_score: float | None
    weight_of_all: int
    weight_kept: int


@dataclass(frozen=True)
class MixGroup:
    """A group of a mix: what it has, how often it is written, and what is written of it."""

    group: str
    n_documents: int
    tokens: int
    epochs: float
    n_written: int
    tokens_written: int


def write_scores(folder: str, scores: list[ScoreRange]) -> None:
    write_json(os.path.join(folder, SCORES_FILE), {"scores": to_json(scores)}, mode=0o666)


def write_buckets(folder: str, table: BucketTable) -> None:
    write_json(os.path.join(folder, BUCKETS_FILE), to_json(table), mode=0o666)


def write_top(folder: str, choice: TopChoice) -> None:
    write_json(os.path.join(folder, TOP_FILE), to_json(choice), mode=0o666)


def write_mix(folder: str, mix: list[MixGroup]) -> None:
    write_json(os.path.join(folder, MIX_FILE), to_json(mix), indent=1, mode=0o666)


def read_scores(folder: Path) -> Iterator[tuple[str, list[ScoreRange]]]:
    """Read all tables of scores in a folder, each with the name of its step ("" for the only one)."""
    return _read_all(folder, SCORES_FILE, lambda data: from_json(list[ScoreRange], data["scores"]))


def read_buckets(folder: Path) -> Iterator[tuple[str, BucketTable]]:
    """Read all tables of buckets in a folder, each with the name of its step."""
    return _read_all(folder, BUCKETS_FILE, lambda data: from_json(BucketTable, data))


def read_tops(folder: Path) -> Iterator[tuple[str, TopChoice]]:
    """Read all choices of the best documents in a folder, each with the name of its step."""
    return _read_all(folder, TOP_FILE, lambda data: from_json(TopChoice, data))


def read_mixes(folder: Path) -> Iterator[tuple[str, list[MixGroup]]]:
    """Read all mixes in a folder, each with the name of its step."""
    return _read_all(folder, MIX_FILE, lambda data: from_json(list[MixGroup], data))


def _read_all(folder: Path, name: str, parse: Callable[[Any], _T]) -> Iterator[tuple[str, _T]]:
    for path in sorted(folder.glob(f"*{name}"))[:_MAX_FILES]:
        try:
            if path.stat().st_size <= _MAX_BYTES:
                yield path.name.removesuffix(name).rstrip("-"), parse(read_json(path))
        except (OSError, ValueError, LookupError, TypeError, RecursionError, Garbled, RunConflict):
            continue
