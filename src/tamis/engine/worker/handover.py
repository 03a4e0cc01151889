"""Batches between two segments: Arrow IPC streams in a scratch file, with their lineage.

The format of records is in formats/scratch/packed_records.py.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa

from tamis.engine.messages import Handover
from tamis.engine.worker.blocks import BlockWriter, check_file, sent_to
from tamis.engine.worker.read import Contents
from tamis.formats.scratch.packed_records import pack, unpack
from tamis.stores.opening import open_arrow, size_of
from tamis.tasks import DocumentBatch, Lineage, Task

_META = b"tamis"


def save(batches: list[DocumentBatch], path: str, far: str = "") -> Handover:
    """Write the batches; returns what the supervisor needs to queue them.

    `far`: where they are sent to from there, if anywhere.
    """
    n_rows = 0
    with BlockWriter(path) as sink:
        for batch in batches:
            if not batch.num_items:
                continue
            table = _table_of(batch)
            with pa.ipc.new_stream(sink, table.schema) as stream:
                stream.write_table(table, max_chunksize=max(1, batch.num_items))
            n_rows += batch.num_items
    return Handover(sent_to(far, path), n_rows, sink.n_bytes, sink.check)


def load(path: str, rows: tuple[int, int], check: str = "") -> tuple[list[Task[Any]], Contents]:
    """Load the batches, restricted to a range of their rows; `check`: the checksum that `save` returned."""
    check_file(path, check)
    contents = Contents()
    tasks: list[Task[Any]] = []
    at, size = 0, size_of(path)
    with open_arrow(path) as source:
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
    lineage = batch.lineage
    assert lineage is not None
    hi, lo = batch.identity
    files, offsets = batch.places()
    kind, records = pack(batch, lineage)
    meta = {
        "dataset": batch.dataset_name,
        "hidden": sorted(lineage.hidden),
        "only": lineage.only,
        "frames": batch.frames,
        "task_id": batch.task_id,
        "sources": batch._metadata.get("source_files"),
        "kind": kind,
    }
    columns = {"_hi": hi, "_lo": lo, "_file": files, "_offset": offsets}
    changed = {"c." + name: array for name, array in lineage.columns.items()}
    table = pa.table({**{name: pa.array(values) for name, values in columns.items()}, **records, **changed})
    return table.replace_schema_metadata({_META: json.dumps(meta)})


def _batch_of(table: pa.Table) -> DocumentBatch:
    meta = json.loads(table.schema.metadata[_META])
    table = table.replace_schema_metadata(None).combine_chunks()
    rows = np.where(table["_row"].to_numpy() >= 0, np.arange(len(table)), -1)
    origin = unpack(meta["kind"], table)
    origin.places = (table["_file"].to_numpy(), table["_offset"].to_numpy())
    columns = {c[2:]: table[c].chunk(0) for c in table.column_names if c.startswith("c.")}
    only = tuple(meta["only"]) if meta["only"] is not None else None
    lineage = Lineage(origin, rows, columns, frozenset(meta["hidden"]), only)
    batch = DocumentBatch.of(lineage, meta["dataset"], meta["frames"])
    batch.task_id = meta["task_id"]
    if meta["sources"] is not None:
        batch._metadata["source_files"] = meta["sources"]
    batch.identify(table["_hi"].to_numpy(), table["_lo"].to_numpy())
    return batch
