"""Batches between two segments: Arrow IPC streams in a scratch file, with everything that lineage needs.

Rows of JSONL records carry their raw bytes, so that the last segment can still write untouched fields byte for byte.
"""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
import pyarrow as pa

from tamis.engine.messages import Handover
from tamis.engine.worker.blocks import BlockWriter, check_file
from tamis.engine.worker.read import Contents
from tamis.formats.jsonl import JsonlBlock
from tamis.formats.tables import TableBlock
from tamis.kernels import buffers, json_scan, json_text
from tamis.tasks import DocumentBatch, Task

_META = b"tamis"


def save(batches: list[DocumentBatch], path: str) -> Handover:
    """Write the batches; returns what the supervisor needs to queue them."""
    n_rows = 0
    with BlockWriter(path) as sink:
        for batch in batches:
            if not batch.num_items:
                continue
            table = _table_of(batch)
            with pa.ipc.new_stream(sink, table.schema) as stream:
                stream.write_table(table, max_chunksize=max(1, batch.num_items))
            n_rows += batch.num_items
    return Handover(path, n_rows, sink.n_bytes, sink.check)


def load(path: str, rows: tuple[int, int], check: str = "") -> tuple[list[Task[Any]], Contents]:
    """The batches, restricted to a range of their rows. `check`: what `save` said."""
    check_file(path, check)
    contents = Contents()
    tasks: list[Task[Any]] = []
    at, size = 0, os.path.getsize(path)
    with pa.OSFile(os.fsencode(path), "rb") as source:
        while source.tell() < size:
            table = pa.ipc.open_stream(source).read_all()
            start, end = max(rows[0] - at, 0), min(rows[1] - at, len(table))
            at += len(table)
            if start < end:
                batch = _batch_of(table.slice(start, end - start))
                contents.batches.append(batch)
                contents.decoded_bytes += table.nbytes * (end - start) // max(1, len(table))
                tasks.append(batch)
    n = contents.n_records
    contents.largest_record = contents.decoded_bytes // n if n else 0
    contents.cut = rows[0] + n // 2 if n > 1 else -1
    return tasks, contents


def _table_of(batch: DocumentBatch) -> pa.Table:
    origin, rows, identity = batch._origin, batch._rows, batch._identity
    assert origin is not None
    assert rows is not None
    assert identity is not None
    meta: dict[str, Any] = {
        "dataset": batch.dataset_name,
        "hidden": sorted(batch._hidden),
        "only": batch._only,
        "frames": batch.frames,
    }
    columns: dict[str, pa.Array] = {"_hi": pa.array(identity[0]), "_lo": pa.array(identity[1])}
    files, offsets = batch.places()
    columns["_file"], columns["_offset"] = pa.array(files), pa.array(offsets)
    if isinstance(origin, JsonlBlock):
        meta["kind"] = "jsonl"
        columns.update(_raw_columns(origin, rows))
    else:
        meta["kind"] = "table"
        columns["_row"] = pa.array(rows)
        for name in origin.field_names():
            if name not in batch._hidden:  # a changed column leaves its place, as nulls
                columns["o." + name] = batch.exact_column(name) if name not in batch._columns else pa.nulls(len(rows))
    columns.update({"c." + name: array for name, array in batch._columns.items()})
    return pa.table(columns).replace_schema_metadata({_META: json.dumps(meta)})


def _raw_columns(origin: JsonlBlock, rows: np.ndarray[Any, Any]) -> dict[str, pa.Array]:
    """Each row's record, where it closes and how many members it has; `{}` for rows that no record stands behind."""
    known = rows >= 0
    at = rows[known]
    start, lens = np.full(len(rows), len(origin.buf), np.int64), np.full(len(rows), 2, np.int64)
    close, n_fields = np.ones(len(rows), np.int64), np.zeros(len(rows), np.int32)
    start[known], lens[known] = origin.start[at], origin.end[at] - origin.start[at]
    close[known], n_fields[known] = origin.close[at] - origin.start[at], origin.n_fields[at]
    source = origin.buf if known.all() else np.concatenate([origin.buf, np.frombuffer(b"{}", np.uint8)])
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(lens, out=offsets[1:])
    data = np.empty(int(offsets[-1]), np.uint8)
    json_text.copy_spans(source, start, lens, data, offsets[:-1])
    raw = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    return {"_raw": raw, "_row": pa.array(rows), "_close": pa.array(close), "_fields": pa.array(n_fields)}


def _batch_of(table: pa.Table) -> DocumentBatch:
    meta = json.loads(table.schema.metadata[_META])
    table = table.replace_schema_metadata(None).combine_chunks()
    n = len(table)
    rows = np.where(table["_row"].to_numpy() >= 0, np.arange(n), -1)
    if meta["kind"] == "jsonl":
        origin: Any = _jsonl_origin(table)
    else:
        kept = [c for c in table.column_names if c.startswith("o.")]
        origin = TableBlock(table.select(kept).rename_columns([c[2:] for c in kept]))
    origin.places = (table["_file"].to_numpy(), table["_offset"].to_numpy())
    batch = DocumentBatch.over(origin, rows, meta["dataset"])
    batch._identity = (table["_hi"].to_numpy(), table["_lo"].to_numpy())
    batch._hidden = frozenset(meta["hidden"])
    batch._only = tuple(meta["only"]) if meta["only"] is not None else None
    batch._frames = meta.get("frames", "pandas")
    batch._columns = {c[2:]: table[c].chunk(0) for c in table.column_names if c.startswith("c.")}
    return batch


def _jsonl_origin(table: pa.Table) -> JsonlBlock:
    parts = buffers.string_buffers(table["_raw"].chunk(0))
    offsets = np.asarray(parts.offsets, np.int64)
    n = len(table)
    none = np.zeros((n, 0), np.int64)
    scan = json_scan.Scan(
        n_records=n, n_blank=0, start=offsets[:-1].copy(), end=offsets[1:].copy(),
        close=offsets[:-1] + table["_close"].to_numpy(), n_fields=table["_fields"].to_numpy(),
        status=np.zeros(n, np.uint8), types=np.zeros((n, 0), np.uint8), val_start=none, val_len=none, keys=(),
    )  # fmt: skip
    return JsonlBlock(parts.data, scan)
