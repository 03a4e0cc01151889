"""Records in which long texts are empty, for documents that are cut into many: each refers to the record it came from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tamis.formats.jsonl.block import JsonlBlock
from tamis.formats.jsonl.encode import encode_jsonl
from tamis.tasks import DocumentBatch, Lineage


def without_texts(batch: DocumentBatch, field: str, many: np.ndarray[Any, Any]) -> DocumentBatch:
    """Return the same documents over records in which the texts of `many` are empty.

    With the whole text in it, a document of 250 kB in 5,000 paragraphs would take more than a gigabyte as soon as
    segments
    are compared with, or passed on together with, their records.
    """
    lineage = batch.lineage
    if lineage is None:
        return batch.copy()
    columns = {name: column for name, column in lineage.columns.items() if name != field}
    rows = lineage.rows
    if not lineage.origin.keeps_bytes:
        return batch.replaced_records(Lineage(lineage.origin, rows, columns, lineage.hidden, lineage.only))
    plain = DocumentBatch.over(lineage.origin, rows)
    rest, emptied = np.flatnonzero((rows >= 0) & ~many), np.flatnonzero((rows >= 0) & many)
    parts = [plain.take(rest), plain.take(emptied).with_column(field, pa.array([""] * len(emptied), pa.large_string()))]
    block = JsonlBlock.parse(np.concatenate([encode_jsonl(part).data for part in parts]), [field])
    order = np.concatenate([rest, emptied])
    files, offsets = batch.places()
    block.places = (files[order], offsets[order])
    at = np.full(len(many), -1, np.int64)
    at[order] = np.arange(len(order))
    return batch.replaced_records(Lineage(block, at, columns, lineage.hidden, lineage.only))
