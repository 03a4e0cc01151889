"""Records of JSONL batches packed for another worker, and unpacked there as they were."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tamis.formats.jsonl.block import JsonlBlock
from tamis.formats.table_block import Array, TableBlock
from tamis.kernels import buffers
from tamis.kernels.records import json_scan, json_text
from tamis.tasks import DocumentBatch, Lineage, Origin

_FIELD = "o."


def pack(batch: DocumentBatch, lineage: Lineage) -> tuple[str, dict[str, pa.Array]]:
    """Pack the records that the documents of a batch come from.

    Return the kind that `unpack` needs, and the columns.
    """
    if isinstance(lineage.origin, JsonlBlock):
        return "jsonl", _raw_columns(lineage.origin, lineage.rows)
    columns = {"_row": pa.array(lineage.rows)}
    for name in lineage.origin.field_names():
        if name not in lineage.hidden:  # a changed column leaves its place, as nulls
            is_changed = name in lineage.columns
            columns[_FIELD + name] = pa.nulls(len(lineage.rows)) if is_changed else batch.exact_column(name)
    return "table", columns


def unpack(kind: str, table: pa.Table) -> Origin:
    if kind == "jsonl":
        return _jsonl_origin(table)
    rows = [c for c in table.column_names if c.startswith(_FIELD)]
    return TableBlock(table.select(rows).rename_columns([c.removeprefix(_FIELD) for c in rows]))


def _raw_columns(origin: JsonlBlock, rows: Array) -> dict[str, pa.Array]:
    """Return each row's record, the offset at which it closes and its number of members.

    Rows without a record get `{}`.
    """
    columns = rows >= 0
    offset = rows[columns]
    start, lens = np.full(len(rows), len(origin.buf), np.int64), np.full(len(rows), 2, np.int64)
    close, n_fields = np.ones(len(rows), np.int64), np.zeros(len(rows), np.int32)
    start[columns], lens[columns] = origin.start[offset], origin.end[offset] - origin.start[offset]
    close[columns], n_fields[columns] = origin.close[offset] - origin.start[offset], origin.n_fields[offset]
    source = origin.buf if columns.all() else np.concatenate([origin.buf, np.frombuffer(b"{}", np.uint8)])
    data, offsets = json_text.gather(source, start, lens)
    raw = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    return {"_raw": raw, "_row": pa.array(rows), "_close": pa.array(close), "_fields": pa.array(n_fields)}


def _jsonl_origin(table: pa.Table) -> JsonlBlock:
    parts = buffers.string_buffers(table["_raw"].chunk(0))
    offsets = np.asarray(parts.offsets, np.int64)
    start, end, close = offsets[:-1].copy(), offsets[1:].copy(), offsets[:-1] + table["_close"].to_numpy()
    status = np.full(len(table), json_scan.OK, np.uint8)
    return JsonlBlock(parts.data, json_scan.Scan.of_lines(start, end, close, table["_fields"].to_numpy(), status))
