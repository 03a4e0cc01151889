"""Keep the records of a unit for later passes, where a stage stored what it made of their largest field.

A file that can only be read from its beginning (WARC) would be decoded in every pass of a workflow. The pass that runs
such a stage (`ProcessingStage.replaced_field`) keeps the other fields (formats/scratch/kept_records.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tamis.engine.units import TO_END, Piece, PieceKind
from tamis.engine.worker.config import PlannedInputs
from tamis.formats.scratch.kept_records import KeptRange, KeptRecords
from tamis.stages.base import ProcessingStage
from tamis.tasks import DocumentBatch

Array = np.ndarray[Any, Any]


class RecordKeeper:
    """The records of one unit. Call `begin` when they are read, and `store` when its stages are through."""

    def __init__(self, folder: str, stages: Sequence[ProcessingStage[Any, Any]]) -> None:
        self._folder = folder
        self._stage = next((stage for stage in stages if stage.replaced_field() is not None), None)
        self._ranges: list[tuple[Piece, KeptRange]] = []
        self._identity: tuple[Array, Array] | None = None
        self._pages: dict[tuple[int, int], str] = {}  # what is in the field of quarantined documents, by place
        if self._stage is not None:
            self._stage.take_kept_bytes()  # of a unit that failed

    @property
    def field(self) -> str:
        """The field that is not kept; "" if nothing is."""
        return "" if self._stage is None else self._stage.replaced_field() or ""

    def begin(self, ranges: list[tuple[Piece, KeptRange]], batches: Sequence[DocumentBatch]) -> None:
        """Take what was read, and the hashes of its documents."""
        n = sum(len(kept.table) for _, kept in ranges)
        if n == sum(batch.num_items for batch in batches) and len(batches) <= 1:
            none = np.zeros(0, np.uint64)
            self._ranges, self._identity = ranges, batches[0].identity if batches else (none, none)

    def note_quarantined(self, batch: DocumentBatch) -> None:
        """Keep the whole records of documents on which a stage failed: later passes quarantine them again."""
        if self._ranges:
            places = zip(*(part.tolist() for part in batch.places()), strict=True)
            texts = batch.texts(self.field).to_pylist()
            self._pages |= {place: text for place, text in zip(places, texts, strict=True) if text is not None}

    def store(self, inputs: PlannedInputs, max_record_bytes: int) -> None:
        """Store the records, if the stage stored its results for all documents that reached it."""
        result_bytes = None if self._stage is None else self._stage.take_kept_bytes()
        if result_bytes is None or self._identity is None:
            return
        first, total = 0, max(1, sum(len(kept.table) for _, kept in self._ranges))
        for piece, kept in self._ranges:
            rows = slice(first, first + len(kept.table))
            kept.identity = (self._identity[0][rows], self._identity[1][rows])
            kept.table = self._with_pages(piece.file, kept)
            path = piece.input_path
            records = KeptRecords(self._folder, path, inputs.get(path), max_record_bytes)
            records.store(kept, result_bytes * len(kept.table) // total)
            if piece.kind is PieceKind.STREAM and piece.end == TO_END:
                records.end_at(kept.end)
            first = rows.stop

    def _with_pages(self, file: int, kept: KeptRange) -> pa.Table:
        pages = [self._pages.get((file, at)) for at in kept.positions.tolist()]
        index = kept.table.schema.get_field_index(self.field)
        return kept.table.set_column(index, self.field, pa.array(pages, pa.large_string()))
