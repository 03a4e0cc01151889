"""Stages that do again what an earlier pass did, from the tables it left (tables.py), without looking at texts."""

from __future__ import annotations

import json
import os
from dataclasses import field
from typing import TYPE_CHECKING, Any

from tamis._dataclasses import dataclass
from tamis._lazy import np
from tamis.dedup.stages import PositionTableStage, without
from tamis.formats.scratch.stored_arrays import read_into
from tamis.stages.base import DropRule, ProcessingStage
from tamis.stores.opening import open_input
from tamis.tasks import DocumentBatch

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


@dataclass(repr=False)
class ReplayDrops(PositionTableStage):
    """Drops what the stage of this name dropped in an earlier pass, for the same rules with the same values.

    `judge`: that stage, which is not run: it knows its rules and what they count in a text, for the report and `tamis
    why`.
    """

    table: str
    name: str = "remembered"
    judge: ProcessingStage[Any, Any] | None = None
    _reasons: list[list[str]] = field(default_factory=list, init=False)

    def rules(self) -> list[DropRule]:
        return self.judge.rules() if self.judge is not None else []

    @property
    def text_field(self) -> Any:
        """The field that the replayed stage reads."""
        return getattr(self.judge, "text_field", None)

    def find_evidence(self, rule: str, text: str) -> list[tuple[int, int]]:
        return self.judge.find_evidence(rule, text) if self.judge is not None else []

    def setup(self, worker_metadata: Any = None) -> None:
        self._reasons = _reasons(self.table)

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        rows, (reason, at, size, id_size) = self.listed(batch, "reason", "value_at", "value_bytes", "id_bytes")
        if not len(rows):
            return batch
        values, ids = self._values_and_ids(at, size, id_size)
        serials = batch.serial[rows]
        for k in np.unique(reason).tolist():
            at_reason = np.flatnonzero(reason == k)
            rule, threshold = self._reasons[k]
            of_rule = [[texts[i] for i in at_reason.tolist()] for texts in (values, ids)]
            self._note_drops(serials[at_reason], rule, of_rule[0], threshold, of_rule[1])
        return without(batch, rows)

    def _values_and_ids(
        self, positions: Array, size: Array, id_size: Array
    ) -> tuple[list[str | None], list[str | None]]:
        """Return the measured values of each document as verdicts have them, and the ids that follow them.

        Those of neighbouring documents are stored together.
        """
        first, id_at = int(positions.min()), positions + np.maximum(size, 0)
        end = int((id_at + np.maximum(id_size, 0)).max())
        buffer = np.empty(end - first, np.uint8)
        read_into(os.path.join(self.table, "values.bin"), first, buffer)
        data = buffer.tobytes()
        return _texts(data, positions - first, size), _texts(data, id_at - first, id_size)


@dataclass(repr=False)
class ReplayQuarantine(PositionTableStage):
    """Quarantines the documents on which a stage failed in an earlier pass."""

    table: str
    name: str = "earlier_quarantine"

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        rows, (reason,) = self.listed(batch, "reason")
        if not len(rows):
            return batch
        reasons = _reasons(self.table)
        self._note_bad(batch.serial[rows], [f"quarantined by an earlier pass: {reasons[int(k)]}" for k in reason])
        return without(batch, rows)


@dataclass(repr=False)
class OnlyListed(PositionTableStage):
    """Keeps the documents of a table of places alone: for a pass that collects their texts."""

    table: str
    name: str = "only_listed"

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        return batch.take(self.listed(batch)[0])


def _texts(data: bytes, positions: Array, size: Array) -> list[str | None]:
    pairs = zip(positions.tolist(), size.tolist(), strict=True)
    return [None if n < 0 else data[a : a + n].decode("utf-8", "surrogatepass") for a, n in pairs]


def _reasons(table: str) -> Any:
    with open_input(os.path.join(table, "reasons.json")) as file:
        return json.loads(file.read())
