"""Writing the documents that a unit made, as staged files, and sending them to a bucket.

Uploaded files become visible in the bucket once the run has committed them.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from tamis import files
from tamis.engine.histograms import Histogram
from tamis.engine.ledger import Ledger
from tamis.engine.messages import StagedFile
from tamis.engine.schema import FileKind
from tamis.engine.units import Mode, Unit, part_suffix
from tamis.engine.worker import binning
from tamis.engine.worker.blocks import BlockWriter
from tamis.engine.worker.config import OutputSpec
from tamis.formats import registry
from tamis.formats.compression.streams import StreamWriter
from tamis.formats.schema import run_schema
from tamis.formats.schema.run_schema import NO_FIELDS, output_schema, to_output_schema
from tamis.formats.schema.type_names import from_json, parse_schema, to_json
from tamis.formats.table_block import row_bytes, row_hashes
from tamis.kernels.records import hash128
from tamis.stores.s3 import Bucket
from tamis.stores.uploads import send
from tamis.stores.urls import split_s3
from tamis.tasks import ROW_ID, DocumentBatch, Task
from tamis.tasks.columns.casting import cast_declared
from tamis.tasks.columns.exact import stored

TASKS = "tasks"  # how files with pickled tasks end


def write_documents(
    batches: Sequence[DocumentBatch], base: str, spec: OutputSpec, ledger: Ledger, model: pa.Schema | None = None
) -> list[StagedFile]:
    """Write all batches to one file `base`.out; returns its description (nothing when there are no documents).

    `model`: the schema of the input, which Parquet files are to look like.
    """
    batches = [b for b in batches if b.num_items]
    if not batches:
        return []
    if spec.fields is not None:
        batches = [b.select(list(spec.fields)) for b in batches]
    for batch in batches:
        ledger.written.add(batch.num_items, hash128.sum128(*batch.identity))
    as_lines = spec.format in registry.LINES or (spec.format == "keep" and all(_keeps_bytes(b) for b in batches))
    if spec.format in registry.PACKERS:
        return _write_packed(batches, base, spec, ledger)
    path = base + ".out"
    before = ledger.content.n, ledger.content.identity
    if as_lines:
        file = _write_lines(batches, path, spec, ledger)
    elif spec.format == "columns":
        file = _write_columns(batches, path, ledger)
    else:
        file = _write_table(batches, path, spec, ledger, model)
    ledger.written_bytes += os.path.getsize(path)
    n_rows = ledger.content.n - before[0]
    return [_described(file, n_rows, ledger.content.identity - before[1])]


def _described(file: StagedFile, n_rows: int, content: int) -> StagedFile:
    return replace(file, rows=n_rows, n_bytes=os.path.getsize(file.path), content=f"{content % (1 << 128):032x}")


def _write_packed(batches: Sequence[DocumentBatch], base: str, spec: OutputSpec, ledger: Ledger) -> list[StagedFile]:
    """Write a format of several files, each with its own rows.

    The format reports what it wrote of each document: bytes and content hash.
    """
    staged = []
    for file, lengths, (hi, lo) in registry.load_packer(spec.format).write(batches, base, spec.options):
        content = hash128.sum128(hi, lo)
        ledger.content.add(len(lengths), content)
        _count_lengths(ledger, lengths)
        n_bytes = os.path.getsize(file["path"])
        ledger.written_bytes += n_bytes
        staged.append(
            StagedFile(kind=FileKind.OUTPUT, rows=len(lengths), n_bytes=n_bytes, content=f"{content:032x}", **file)
        )
    return staged


def write_tasks(tasks: Sequence[Task[Any]], base: str, key: bytes) -> list[StagedFile]:
    """Pickle tasks of a user's own kinds for the program that called the run, signed with its `key`."""
    if not tasks:
        return []
    import cloudpickle

    path = base + ".tasks"
    data = cloudpickle.dumps(list(tasks))
    data = hmac.digest(key, data, "sha256") + data
    with files.create(path) as file:
        file.write(data)
    content = hashlib.blake2b(data, digest_size=16).hexdigest()
    return [StagedFile(path, FileKind.OUTPUT, 0, len(data), TASKS, content)]


def _write_lines(batches: Sequence[DocumentBatch], path: str, spec: OutputSpec, ledger: Ledger) -> StagedFile:
    name, data_bytes = spec.format if spec.format in registry.LINES else "jsonl", 0
    with StreamWriter(files.fresh(path), spec.codec) as file:
        for batch in batches:
            written = registry.load_line_format(name).written_lines(batch)
            ledger.content.add(batch.num_items, hash128.sum128(*written.hashes))
            _count_lengths(ledger, written.lengths)
            for piece in written.pieces:
                data_bytes += file.write(piece)
    extension = spec.extension if spec.format == name else name
    return StagedFile(path, FileKind.OUTPUT, extension=extension, joins=True, data_bytes=data_bytes)


def _write_columns(batches: Sequence[DocumentBatch], path: str, ledger: Ledger) -> StagedFile:
    """Write columns in their memory layout, one record batch per batch, for passes that read them by position.

    Between passes of one workflow only: the stage gives all batches the same columns, but for those of
    `_with_same_columns`, and what identifies a row's content here is the document it was made from.
    """
    tables = [b.traced_table(b.lineage.only if b.lineage else None).drop_columns([ROW_ID]) for b in batches]
    tables = _with_same_columns(tables)
    with BlockWriter(path, 0o666) as file, pa.ipc.new_file(file, tables[0].schema) as writer:
        for batch, table in zip(batches, tables, strict=True):
            ledger.content.add(batch.num_items, hash128.sum128(*batch.identity))
            _count_lengths(ledger, row_bytes(table))
            writer.write_table(table.combine_chunks())
    return StagedFile(path, FileKind.OUTPUT, extension="arrow", check=file.check)


def _with_same_columns(tables: list[pa.Table]) -> list[pa.Table]:
    """Return tables whose columns are the same, for one file.

    A column of a fixed number of bytes that only some have (vectors, where there are any) is null in the others. Of
    numbers that only some have the meaning of a missing one is unknown: they go (what is known of plain records
    in a file, next to others that do not).
    """
    by_name = {field.name: field.type for t in tables for field in t.schema}
    if all(t.schema.names == list(by_name) for t in tables):
        return tables
    kinds = {
        name: kind
        for name, kind in by_name.items()
        if pa.types.is_fixed_size_binary(kind) or all(name in t.schema.names for t in tables)
    }
    return [
        pa.table({n: t.column(n) if n in t.schema.names else pa.nulls(len(t), kind) for n, kind in kinds.items()})
        for t in tables
    ]


def _write_table(
    batches: Sequence[DocumentBatch], path: str, spec: OutputSpec, ledger: Ledger, model: pa.Schema | None
) -> StagedFile:
    facts: run_schema.Facts = {}
    fitting: Iterator[pa.Table]
    if spec.schema is not None:
        target = parse_schema(spec.schema).remove_metadata()
        fitting = (_fit_declared(b, target)[0] for b in batches)
    else:
        target, fitting, facts = _unify(batches, list(spec.fields or ()))
    file_schema = output_schema(target, model if spec.schema is None else None, spec.fields or ())
    name = spec.format if spec.format in registry.TABLES else "parquet"
    data_bytes = 0
    with registry.load_table_format(name).TableWriter(files.fresh(path), file_schema, **spec.table_options()) as writer:
        for table in fitting:
            ledger.content.add(len(table), hash128.sum128(*row_hashes(table)))
            lengths = row_bytes(table)
            data_bytes += int(lengths.sum())
            _count_lengths(ledger, lengths)
            writer.write(table if file_schema is target else to_output_schema(table, file_schema))
    extension = spec.extension if name == spec.format else name
    observed = json.dumps(run_schema.facts_to_json(facts), sort_keys=True) if facts else None
    schema = json.dumps(to_json(target))
    return StagedFile(
        path, FileKind.OUTPUT, extension=extension, schema=schema, observed=observed, data_bytes=data_bytes
    )


def _unify(
    batches: Sequence[DocumentBatch], fields: list[str]
) -> tuple[pa.Schema, Iterator[pa.Table], run_schema.Facts]:
    """Return the schema that all batches fit, the batches as tables of it, and the facts of their values."""
    tables = [_stored_table(b) for b in batches]
    facts = [run_schema.facts_of(t) if _keeps_bytes(b) else {} for b, t in zip(batches, tables, strict=True)]
    parts = [(t.schema, s) for t, s in zip(tables, facts, strict=True)]
    target = run_schema.run_schema(parts, fields)
    return target, (run_schema.to_run_schema(t, target) for t in tables), run_schema.join_facts(facts)


def _keeps_bytes(batch: DocumentBatch) -> bool:
    """Return True if its records are lines, which have no types and can be written unchanged."""
    return batch.lineage is not None and batch.lineage.origin.keeps_bytes


def _stored_table(batch: DocumentBatch) -> pa.Table:
    """Return the documents as a table whose types follow their own values.

    The values of documents that were dropped from the batch have no influence.
    """
    names = batch.get_columns()
    columns = [stored(batch.exact_column(name)) for name in names]
    # Keeps the number of rows.
    return pa.table([*columns, pa.array(batch.serial)], names=[*names, ROW_ID]).drop_columns([ROW_ID])


def _count_lengths(ledger: Ledger, lengths: np.ndarray[Any, Any]) -> None:
    binning.count(lengths, ledger.lengths.setdefault("out", Histogram()))


def _fit_declared(batch: DocumentBatch, target: pa.Schema) -> tuple[pa.Table, dict[int, str]]:
    """Return the documents that fit, in the declared schema, and by row the reason of each that does not.

    Columns that the schema does not name are left out, as with fields=.
    """
    # What each record says decides, whatever its neighbours are.
    columns = {name: batch.exact_column(name) for name in batch.get_columns() if name in target.names}
    table = pa.table(columns) if columns else pa.table({NO_FIELDS: pa.nulls(batch.num_items)}).select([])
    fitting, rows, reasons = cast_declared(table, target)
    return fitting, dict(zip(rows.tolist(), reasons, strict=True))


def join_files(parts: Sequence[str], fields: Sequence[str]) -> str:
    """Join the schemas and facts of a run's files into those of the whole run, as JSON.

    Each part is JSON of [schema, facts], these as JSON too.
    """
    read = []
    for part in parts:
        plain, observed = json.loads(part)
        read.append((from_json(json.loads(plain)), run_schema.facts_from_json(json.loads(observed))))
    joined = run_schema.run_schema(read, fields)
    facts = run_schema.join_facts(seen for _, seen in read)
    return json.dumps([json.dumps(to_json(joined)), json.dumps(run_schema.facts_to_json(facts), sort_keys=True)])


def check_declared(batch: DocumentBatch, declared: Mapping[str, str]) -> tuple[DocumentBatch, list[tuple[int, str]]]:
    """Return the documents that fit a declared schema, and (row, reason) of those that do not."""
    _, bad = _fit_declared(batch, parse_schema(declared))
    if not bad:
        return batch, []
    keep = np.ones(batch.num_items, bool)
    keep[list(bad)] = False
    return batch.filter(keep), sorted(bad.items())


def recast_table(
    path: str, target_path: str, union: str, spec: OutputSpec, model: pa.Schema | None = None
) -> StagedFile:
    """Rewrite the rows under the schema of the whole run, which `join_files` returned."""
    plain, observed = json.loads(union)
    target = from_json(json.loads(plain))
    rows = registry.load_table_format(spec.format)
    info = rows.describe(path)
    content = data_bytes = 0
    file_schema = output_schema(target, model if spec.schema is None else None, spec.fields or ())
    with rows.TableWriter(files.fresh(target_path), file_schema, **spec.table_options()) as writer:
        for _, table in rows.iter_rows(path, 0, info.n_rows):
            cast = run_schema.to_run_schema(table.replace_schema_metadata(None), target)
            content += hash128.sum128(*row_hashes(cast))
            data_bytes += int(row_bytes(cast).sum())
            writer.write(cast if file_schema is target else to_output_schema(cast, file_schema))
    file = StagedFile(
        target_path, FileKind.OUTPUT, extension=spec.extension, schema=plain, observed=observed, data_bytes=data_bytes
    )
    return _described(file, info.n_rows, content)


# -- uploads -----------------------------------------------------------------------------------------------------------
def send_outputs(staged: list[StagedFile], unit: Unit, url: str) -> list[StagedFile]:
    """Send the output files, delete them from this machine and return their descriptions.

    `name` and `upload` say what to complete.
    """
    bucket_name, prefix = split_s3(url)
    bucket, n_sent, sent = Bucket(bucket_name), 0, []
    for file in staged:
        if file.kind is not FileKind.OUTPUT:
            sent.append(file)
            continue
        n_sent += not (file.belongs and n_sent)  # what belongs to the file before it shares its name
        name = object_name(unit, file.extension, n_sent - 1)
        upload = send(bucket, f"{prefix}/{name}", file.path)
        files.remove(file.path)
        sent.append(replace(file, joins=False, name=name, upload=(upload.id, upload.mark, upload.parts)))
    return sent


def object_name(unit: Unit, extension: str, index: int) -> str:
    """Return a name that sorts in input order and that no other unit of the run has.

    A rewritten file is named after the one it replaces.
    """
    if unit.mode is Mode.REWRITE:
        assert unit.rewrite is not None
        if unit.rewrite.names:
            return unit.rewrite.names[index]
        old = os.path.basename(unit.rewrite.paths[0]).removesuffix(f".{extension}")
        part = f".c{index}" if index else ""
        return f"{old.partition('.r-')[0]}{part}.r-{os.urandom(4).hex()}.{extension}"
    piece = unit.pieces[0]
    name = f"part-{piece.file:06d}-{piece.start:015d}"
    if unit.segment and unit.handover_rows[0]:
        name += f"_r{unit.handover_rows[0]:012d}"
    if unit.sampling_step:
        name += f"-s{unit.sampling_step}"
    return f"{name}{part_suffix(index)}.{extension}"
