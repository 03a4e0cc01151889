"""Segments of documents gathered by id, wherever they are stored: the two stages around the shuffle of a join.

`SegmentRecords` turns a partition into records sorted by the hash of the document's id; `GatherSegments` reads one
range of hashes out of all of them, so that every segment of a document is in one batch, which DocumentJoiner then
joins.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tamis._lazy import np, pa
from tamis.errors import FormatError
from tamis.formats.arrow.column_places import batches_of
from tamis.formats.scratch.stored_arrays import read_into
from tamis.stages.base import ProcessingStage
from tamis.stages.resources import Resources
from tamis.tasks import DocumentBatch, FileGroupTask

SUFFIX = ".range"


@dataclass(repr=False)
class SegmentRecords(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Documents as JSON lines, sorted by the hash of their id.

    One without an id gets a hash of its own, by its place.
    """

    document_id_field: str = "id"
    name: str = "segment_records"
    columns_in = ("document_id_field",)

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        from tamis.dedup.keys import position_columns, record_batch
        from tamis.formats.jsonl.encode import encode_jsonl

        places = position_columns(batch)
        key = self._keys(batch, places)
        order = np.argsort(key, kind="stable")
        batch = batch.take(order)
        lines = encode_jsonl(batch)
        columns = {name: values[order] for name, values in places.items()} | {"key": key[order]}
        record = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), batch.num_items, [None, pa.py_buffer(lines.offsets), pa.py_buffer(lines.data)]
        )
        return record_batch(batch, columns).with_column("record", record)

    def _keys(self, batch: DocumentBatch, places: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        """Return 64-bit keys of the texts of the ids: equal ids have equal keys."""
        from tamis.dedup.decisions import position_ids
        from tamis.dedup.keys import text_hashes
        from tamis.tasks.columns.casting import widen

        hi, _, length = text_hashes(widen(batch.column(self.document_id_field), pa.large_string()))
        alone = text_hashes(position_ids(places["file"], places["offset"]).cast(pa.large_string()))[0]
        return np.where(length < 0, alone, hi)


@dataclass(repr=False)
class GatherSegments(ProcessingStage[FileGroupTask, DocumentBatch]):
    """Reads ranges of hashes; a task's files are JSON with `files` (JSON with the record files), `low` and `high`."""

    name: str = "gather_segments"
    resources: Resources = field(default_factory=lambda: Resources(cpus=1.0))

    def process(self, task: FileGroupTask) -> list[DocumentBatch]:
        from tamis.formats.jsonl.block import JsonlBlock

        documents = []
        for path in task.data:
            with open(path, encoding="utf-8") as file:
                about = json.load(file)
            with open(about["files"], encoding="utf-8") as file:
                sources = json.load(file)
            pieces = [piece for source in sources for piece in _range_of(source, int(about["low"]), int(about["high"]))]
            if not pieces:
                continue
            block = JsonlBlock.parse(np.frombuffer(b"".join(pieces), np.uint8))
            if block.bad:
                raise FormatError(
                    f"{path}: a record of a join is damaged ({block.bad[0][2]}); start over with fresh (--fresh)"
                )
            documents.append(DocumentBatch.over(block, np.arange(block.n_rows), task.dataset_name))
        return documents


def _range_of(path: str, low: int, high: int) -> list[bytes]:
    """Return the lines of a record file whose keys are in [low, high)."""
    offsets = []
    for batch in batches_of(path):
        keys, ends = batch.values("key"), batch.ends("record")
        a = keys.search(low) if low else 0
        b = keys.search(high, a) if high < 1 << 64 else len(keys)
        if b > a:
            start = int(ends[a])
            piece = np.empty(int(ends[b]) - start, np.uint8)
            read_into(path, batch.data_at("record") + start, piece)
            offsets.append(piece.tobytes())
    return offsets
