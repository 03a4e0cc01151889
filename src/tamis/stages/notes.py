"""Reports of a stage about one call of `process_batch`: drops, bad documents, input it read itself, metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from tamis._dataclasses import dataclass

ScoreCounter = Callable[[str, Any, Any], None]
"""Counts scores in a histogram of the run: name, scores, serials of their documents or None."""


class DropNote(NamedTuple):
    """Documents that one rule dropped.

    `threshold`: parameters of the rule with their values, or a sentence. `ids`: the documents' own, as text, where the
    stage knows them; otherwise their records are read.
    """

    serials: Any
    reason: str
    values: Any
    threshold: Mapping[str, Any] | str
    ids: Sequence[str | None] | None = None


class InputFault(NamedTuple):
    """Part of a file that a stage reads itself and cannot turn into documents.

    `offset` and `length` count `unit` ("bytes" of the file as stored, or "decoded bytes"). `n`: the number of records
    in it, 0 if that is unknown; then `lost_bytes` of the file as stored count as unread.
    """

    path: str
    offset: int
    length: int
    reason: str
    unit: str = "bytes"
    n: int = 0
    lost_bytes: int = 0


class InputNotes(NamedTuple):
    """Files that a stage read by itself: their faults, and the totals that the quarantine limit is a share of.

    `skipped`: records without a document, by reason.
    """

    faults: Sequence[InputFault] = ()
    n_records: int = 0
    n_bytes: int = 0
    skipped: Mapping[str, int] = {}

    def plus(self, other: InputNotes) -> InputNotes:
        return InputNotes(
            [*self.faults, *other.faults],
            self.n_records + other.n_records,
            self.n_bytes + other.n_bytes,
            {r: self.skipped.get(r, 0) + other.skipped.get(r, 0) for r in [*self.skipped, *other.skipped]},
        )


@dataclass
class CallNotes:
    """The notes of one call. The worker opens them before it calls a stage and takes them afterwards."""

    drops: list[DropNote] = field(default_factory=list)
    bad: list[tuple[Any, list[str]]] = field(default_factory=list)
    """Serials of documents for the quarantine, with a reason each."""
    input: InputNotes = field(default_factory=InputNotes)
    count_scores: ScoreCounter | None = None

    def bad_by_serial(self) -> dict[int, str]:
        """Return the reason for each document that goes to the quarantine, by its serial."""
        return {int(s): reason for serials, reasons in self.bad for s, reason in zip(serials, reasons, strict=True)}

    def labelled_drops(self, name: str, label: str) -> list[DropNote]:
        """Return the drops; those whose reason is the stage's name carry its label in the pipeline instead."""
        return [n if n.reason != name else n._replace(reason=label) for n in self.drops]
