"""Writing the documents that a unit made, as staged files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tamis.engine.ledger import Ledger
from tamis.engine.place import OutputSpec
from tamis.formats import parquet, schema
from tamis.formats.compression import open_writer
from tamis.formats.encode import encode_jsonl
from tamis.formats.jsonl import JsonlBlock
from tamis.formats.row_hashes import row_hashes
from tamis.kernels import hash128
from tamis.tasks import ROW_ID, DocumentBatch


def write_documents(batches: Sequence[DocumentBatch], base: str, spec: OutputSpec, ledger: Ledger) -> list[dict[str, Any]]:
    """Write all batches to one file `base`.out; returns its description (nothing when there are no documents)."""
    batches = [b for b in batches if b.num_items]
    if not batches:
        return []
    if spec.fields is not None:
        batches = [b.select(list(spec.fields)) for b in batches]
    for batch in batches:
        assert batch._identity is not None
        ledger.written.add(batch.num_items, hash128.sum128(*batch._identity))
    as_jsonl = spec.format == "jsonl" or (spec.format == "keep" and all(isinstance(b._origin, JsonlBlock) for b in batches))
    path = base + ".out"
    before = ledger.content.n, ledger.content.identity
    if as_jsonl:
        description = _write_jsonl(batches, path, spec, ledger)
    else:
        description = _write_parquet(batches, path, spec, ledger)
    n_bytes = os.path.getsize(path)
    ledger.written_bytes += n_bytes
    n_rows = ledger.content.n - before[0]
    content = (ledger.content.identity - before[1]) % (1 << 128)
    return [{"path": path, "kind": "output", "rows": n_rows, "bytes": n_bytes, "content": f"{content:032x}", **description}]


def _write_jsonl(batches: Sequence[DocumentBatch], path: str, spec: OutputSpec, ledger: Ledger) -> dict[str, Any]:
    with open_writer(path, spec.codec) as out:
        for batch in batches:
            encoded = encode_jsonl(batch)
            ledger.content.add(batch.num_items, hash128.sum128(*encoded.content_hash()))
            out.write(memoryview(encoded.data))
    extension = spec.extension if spec.format == "jsonl" else "jsonl"
    return {"extension": extension}


def _write_parquet(batches: Sequence[DocumentBatch], path: str, spec: OutputSpec, ledger: Ledger) -> dict[str, Any]:
    tables = [b.to_pyarrow().drop_columns([ROW_ID]) for b in batches]
    if spec.schema is not None:
        target = schema.parse_schema(spec.schema)
    else:
        target = tables[0].schema
        for table in tables[1:]:
            target = schema.join_schemas(target, table.schema)
        target = schema.canonical_order(target, list(spec.fields or ()))
    target = target.remove_metadata()
    with parquet.TableWriter(path, target, compression=spec.compression) as writer:
        for table in tables:
            cast = schema.cast_table(table, target)
            ledger.content.add(len(cast), hash128.sum128(*row_hashes(cast)))
            writer.write(cast)
    return {"extension": "parquet", "schema": schema.to_json(target)}


def check_declared(batch: DocumentBatch, declared: Mapping[str, str]) -> tuple[DocumentBatch, list[tuple[int, str]]]:
    """Documents that fit a declared schema, and (row, reason) of those that do not."""
    import numpy as np

    target = schema.parse_schema(declared)
    table = batch.to_pyarrow().drop_columns([ROW_ID])
    table = table.select([n for n in table.column_names if n in target.names])
    _, bad, reasons = schema.cast_declared(table, target)
    if not len(bad):
        return batch, []
    keep = np.ones(batch.num_items, bool)
    keep[bad] = False
    return batch.filter(keep), list(zip([int(b) for b in bad], reasons, strict=True))


def recast_parquet(path: str, out: str, target: pa.Schema, compression: str) -> dict[str, Any]:
    """The same rows under the schema of the whole run."""
    info = parquet.describe(path)
    content = 0
    with parquet.TableWriter(out, target, compression=compression) as writer:
        for _, table in parquet.iter_rows(path, 0, info.n_rows):
            cast = schema.cast_table(table, target)
            content += hash128.sum128(*row_hashes(cast))
            writer.write(cast)
    return {
        "path": out, "kind": "output", "rows": info.n_rows, "bytes": os.path.getsize(out), "extension": "parquet",
        "content": f"{content % (1 << 128):032x}", "schema": schema.to_json(target),
    }  # fmt: skip
