"""Mixing: several inputs with a weight each. How often a document is written follows from its weight and the hash of its text."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tamis.errors import UsageError
from tamis.stages.base import ProcessingStage
from tamis.tasks import DocumentBatch

_SEED = 0x6D6978
_MOST = 100.0


@dataclass(frozen=True)
class Source:
    """A folder, glob or file, and how often its documents are to be written: 0.5 half of them, 2 each twice, 1.5 each once
    and half of them twice."""

    path: str
    weight: float = 1.0

    def __post_init__(self) -> None:
        number = isinstance(self.weight, (int, float)) and not isinstance(self.weight, bool)
        if not number or not 0 < self.weight <= _MOST or not isinstance(self.path, str) or not self.path:
            raise UsageError(
                f"sources: expected a path and a weight above 0, at most {_MOST:g}, got {self.path!r} and {self.weight!r}"
            )


def sources_of(given: Any) -> list[Source]:
    """As users give them: Source objects, or mappings with `path` and `weight`."""
    if not isinstance(given, Sequence) or isinstance(given, str) or not given:
        raise UsageError(
            f"sources: expected a list, e.g. [{{path: web/, weight: 1}}, {{path: books/, weight: 2}}], got {given!r}"
        )
    made = []
    for one in given:
        if isinstance(one, Mapping):
            unknown = sorted(set(one) - {"path", "weight"})
            if unknown or "path" not in one:
                raise UsageError(f"sources: expected path and weight, got {sorted(one)}")
            one = Source(**one)
        if not isinstance(one, Source):
            raise UsageError(f"sources: expected a mapping with path and weight, got {one!r}")
        made.append(one)
    return made


@dataclass(repr=False)
class Mix(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Writes each document as often as the weight of its input file says.

    `first_files`: numbers of the first input file of each source, ascending; `weights`: of each source.
    """

    first_files: list[int]
    weights: list[float]
    text_field: str = "text"
    name: str = "mix"

    def inputs(self) -> Any:
        return ["data"], [self.text_field]

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        import numpy as np

        from tamis.kernels.buffers import string_buffers
        from tamis.kernels.hash128 import hash_arrow_strings

        if not batch.num_items:
            return batch
        parts = string_buffers(batch.texts(self.text_field))
        draws, _ = hash_arrow_strings(parts.offsets, parts.data, parts.validity, _SEED)
        uniform = (draws >> np.uint64(11)).astype(np.float64) / 2.0**53
        numbers, at = np.unique(batch.places()[0], return_inverse=True)
        weight = np.array([self.weights[max(0, bisect_right(self.first_files, n) - 1)] for n in numbers.tolist()])[at]
        times = np.floor(weight).astype(np.int64) + (uniform < weight - np.floor(weight))
        if bool((times == 1).all()):
            return batch
        gone = np.flatnonzero(times == 0)
        told = [f"{w:g}" for w in weight[gone].tolist()]
        self._note_drops(batch.serial[gone], "not_in_the_mix", told, {"weight": "of its source"})
        return batch.take(np.repeat(np.arange(batch.num_items), times))


def is_plain(sources: Sequence[Source]) -> bool:
    """Whether every document is to be written once."""
    return all(math.isclose(s.weight, 1.0) for s in sources)
