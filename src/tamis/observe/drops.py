"""Dropped documents by stage and rule: documents, bytes, examples. From the ledger of a run and its plan.

Imports nothing heavy: `tamis run` prints this in the supervisor's process.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple, TypedDict

from tamis.engine.ledger import Dropped, Example, Ledger


class DropSummary(TypedDict):
    """A `Drop` as plain values."""

    stage: str
    reason: str
    documents: int
    bytes: int
    examples: list[str]


class Drop(NamedTuple):
    """`reason`: the rule, or the stage itself where it named none.

    `bytes`: of the input records, 0 where there are none. `examples`: names that `tamis why` understands.
    """

    stage: str
    reason: str
    documents: int
    bytes: int
    examples: list[str]

    def to_dict(self) -> DropSummary:
        return {
            "stage": self.stage,
            "reason": self.reason,
            "documents": self.documents,
            "bytes": self.bytes,
            "examples": self.examples,
        }


def drops_of(ledger: Ledger, paths: Callable[[], Sequence[str]]) -> list[Drop]:
    """Return the stages in their order; of each, the rule that dropped most documents first.

    `paths` is called only if it is needed.
    """
    places = _Places(paths)
    drops = []
    for book in ledger.stages:
        of_stage = [_drop(book.name, reason, t, places) for reason, t in book.dropped.items() if t.n]
        of_stage += [Drop(book.name, reason, n, 0, []) for reason, n in book.skipped.items()]
        drops += sorted(of_stage, key=lambda drop: (-drop.documents, drop.reason))
    return drops


def _drop(stage: str, reason: str, tally: Dropped, places: _Places) -> Drop:
    return Drop(stage, reason, tally.n, tally.n_bytes, [name for e in tally.examples if (name := places.name(e))])


class _Places:
    """Names for documents without an id: the input file and the offset in it."""

    def __init__(self, paths: Callable[[], Sequence[str]]) -> None:
        self._load = paths

    @cached_property
    def _paths(self) -> Sequence[str]:
        return self._load()

    @cached_property
    def _n_same(self) -> Counter[str]:
        return Counter(map(os.path.basename, self._paths))

    def name(self, example: Example) -> str:
        file, offset, name = example
        if name is not None:
            return name
        if not 0 <= file < len(self._paths):
            return ""
        path = self._paths[file]
        short = os.path.basename(path)
        return f"{short if self._n_same[short] == 1 else path}:{offset}"
