"""Scores of the documents that stayed: they show what a stricter limit would drop, without reading texts again.

Collected while stages run, two bytes per document and rule, and written next to the output of the unit
(formats/scratch/score_file.py), so that they are committed, resumed and done over with it. Documents are found again at
the end by the identity that stages leave them; one that a stage created has no scores of the stages before.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from tamis import files
from tamis.engine.messages import StagedFile
from tamis.engine.schema import FileKind
from tamis.engine.worker.dropped import record_bytes
from tamis.formats.scratch.score_file import MISSING, ScoreKey, ScoreTable, codes_of, encode_scores
from tamis.tasks import DocumentBatch

Array = np.ndarray[Any, Any]
Key = tuple[str, str]
_MAX_WAITING = 1 << 20  # bytes


class ScoreCollector:
    """`wanted`: (stage, score) of the rules that compare a score with a limit; nothing is kept of others."""

    def __init__(self, keys: Collection[Key]) -> None:
        self._keys = frozenset(keys)
        self._noted: list[tuple[Key, Array, Array]] = []  # numbers that wait to be made codes, many at once
        self._waiting = 0
        self._chunk: dict[Key, Array] = {}  # codes of the documents that a stage sees together, by serial
        self._n = 0
        self._is_whole: dict[Key, bool] = {}
        # stage -> identities and codes of what it let pass.
        self._done: dict[str, list[tuple[Array, dict[Key, Array]]]] = {}

    @property
    def n_bytes(self) -> int:
        """Bytes held for the documents so far."""
        done = [part for parts in self._done.values() for part in parts]
        return sum(ids.nbytes + sum(c.nbytes for c in codes.values()) for ids, codes in done)

    def begin(self, n: int) -> None:
        """Start on `n` documents that a stage sees together; discard what a failed attempt recorded."""
        self._noted, self._waiting, self._chunk, self._n = [], 0, {}, n

    def note(self, stage: str, score: str, serials: Array, numbers: Array, is_whole: bool) -> None:
        """Note the scores (64-bit floats) of the documents with these serials."""
        key = (stage, score)
        if key in self._keys:
            self._is_whole[key] = self._is_whole.get(key, True) and is_whole
            self._noted.append((key, serials, numbers.copy()))  # whose they are may use the room again
            self._waiting += numbers.nbytes + serials.nbytes
            if self._waiting > _MAX_WAITING:
                self._encode()

    def note_survivors(self, stage: str, serials: Array, identity: Array) -> None:
        """Record that these documents left the stage; `identity`: of all that came in, by serial."""
        if len(serials):
            self._encode()
            codes = {key: all_codes[serials] for key, all_codes in self._chunk.items()}
            if codes:
                self._done.setdefault(stage, []).append((identity[serials], codes))
        self.begin(0)

    def _encode(self) -> None:
        if not self._noted:
            return
        codes = codes_of(np.concatenate([numbers for _, _, numbers in self._noted]))
        at = 0
        for key, serials, numbers in self._noted:
            if key not in self._chunk:
                self._chunk[key] = np.full(self._n, MISSING, np.int16)
            self._chunk[key][serials] = codes[at : at + len(numbers)]
            at += len(numbers)
        self._noted, self._waiting = [], 0

    def write(self, documents: Sequence[DocumentBatch], base: str, is_last: bool) -> list[StagedFile]:
        """Write the staged file on these documents, in their order; nothing if no rule was evaluated."""
        documents = [b for b in documents if b.num_items]
        if not self._done or not documents:
            return []
        identity = np.concatenate([b.identity[0] for b in documents])
        places = [b.places() for b in documents]
        table = ScoreTable(
            np.concatenate([p[0] for p in places]),
            np.concatenate([p[1] for p in places]),
            np.concatenate([record_bytes(b) for b in documents]),
            is_last=is_last,
        )
        for parts in self._done.values():
            keys = list(parts[0][1])
            parts = [p for p in parts if list(p[1]) == keys]
            positions = _positions_of(identity, _joined([ids for ids, _ in parts]))
            for key in keys:
                codes = _joined([codes[key] for _, codes in parts])
                if positions is not None:
                    codes = codes[positions[0]]
                    codes[positions[1]] = MISSING
                table.codes[ScoreKey(*key, self._is_whole[key])] = codes
        path = base + ".scores"
        with files.create(path) as file:
            file.write(encode_scores(table))
        return [StagedFile(path, FileKind.SCORES, len(table), extension="bin")]


def _positions_of(identities: Array, stored: Array) -> tuple[Array, Array] | None:
    """Return the position of each wanted identity among the known ones, and which wanted ones are missing.

    None: they are the same ones.
    """
    if len(identities) == len(stored) and bool((identities == stored).all()):
        return None
    order = np.argsort(stored)
    ordered = stored[order]
    at = np.minimum(np.searchsorted(ordered, identities), len(stored) - 1)
    return order[at], np.flatnonzero(ordered[at] != identities)


def _joined(parts: Sequence[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
