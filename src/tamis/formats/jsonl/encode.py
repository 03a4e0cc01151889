"""Encode documents as JSONL, touching only what changed.

A row that came from a JSONL record is written as that record's bytes, with changed values replaced in place and new
fields spliced in before the closing brace. Rows that lost fields, rows from tables and new rows are built from
literals.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis._dataclasses import dataclass
from tamis.formats.base import WrittenLines
from tamis.formats.jsonl.block import JsonlBlock
from tamis.formats.table_block import TableBlock
from tamis.kernels.records import hash128, join, json_text, splice
from tamis.tasks import NULL, ROW_ID, DocumentBatch, Lineage
from tamis.tasks.columns.canonical import canonical_text
from tamis.tasks.columns.casting import is_text
from tamis.tasks.columns.exact import same_values, take_or_null, texts_of_column, values_of
from tamis.tasks.columns.json_type import deep_recursion, is_json
from tamis.tasks.columns.literals import as_json, literals_of

Array = np.ndarray[Any, Any]
_FEW = 4  # less than one in four
_RUN_BYTES = 16_384  # on average; a shorter piece costs more to write than to copy


@dataclass
class Encoded:
    """Lines of JSONL: row i is data[offsets[i]:offsets[i + 1]], newline included."""

    data: Array
    offsets: Array
    hashes: tuple[Array, Array] | None = None  # of every line, where they are known

    def content_hash(self) -> tuple[Array, Array]:
        if self.hashes is not None:
            return self.hashes
        starts = self.offsets[:-1]
        return hash128.hash_spans(self.data, starts, self.offsets[1:] - starts - 1)


def written_lines(batch: DocumentBatch) -> WrittenLines:
    """Encode as `encode_jsonl` does, without copying long runs of unchanged records.

    These are pieces of the input block.
    """
    lineage = batch.lineage
    if lineage is not None and isinstance(lineage.origin, JsonlBlock) and lineage.is_untouched:
        origin, rows = lineage.origin, lineage.rows
        hashes, lengths = _stored_hashes(origin, rows), origin.end[rows] - origin.start[rows]
        if hashes is not None and origin.stored is not None and not origin.is_read and _ascending(rows):
            return WrittenLines(origin.windows(rows), hashes, lengths)
        runs = _runs(origin, rows)
        if hashes is not None and runs is not None:
            return WrittenLines([origin.buf[a:b] for a, b in runs], hashes, lengths)
    encoded = encode_jsonl(batch)
    return WrittenLines([encoded.data], encoded.content_hash(), np.diff(encoded.offsets) - 1)


def _runs(origin: JsonlBlock, rows: Array) -> list[tuple[int, int]] | None:
    """Return the spans of the block that hold these records with their line feeds, and nothing else.

    None when a record is not followed by a line feed, or the stretches are so short that copying them together costs
    less.
    """
    start, end = origin.start[rows], origin.end[rows]
    if not len(rows) or int(end.max()) >= len(origin.buf) or not bool((origin.buf[end] == 10).all()):
        return None
    runs = origin.stretches(rows)
    return None if len(runs) > 1 + int((end - start).sum()) // _RUN_BYTES else runs


def _ascending(rows: Array) -> bool:
    return len(rows) > 0 and bool((np.diff(rows) > 0).all())


def encode_jsonl(batch: DocumentBatch) -> Encoded:
    lineage = batch.lineage
    assert lineage is not None
    origin, rows = lineage.origin, lineage.rows
    if not isinstance(origin, JsonlBlock):
        return _from_columns(
            np.arange(len(rows)), {n: batch.exact_column(n) for n in batch.get_columns()}, with_nulls=True
        )
    new = rows < 0
    if new.any():
        return _interleave(batch, new)
    if lineage.only is not None or lineage.hidden:
        return _rebuilt(batch, origin, rows, lineage.columns)
    if lineage.columns:
        return _spliced(origin, rows, lineage.columns, lineage.changed)
    return Encoded(*splice.assemble_plain(origin.buf, origin.start, origin.end, rows), _stored_hashes(origin, rows))


def json_lines_of(batch: DocumentBatch) -> memoryview | None:
    """Return the documents of a batch as JSONL, or None if its columns have Arrow types that JSON would lose."""
    if batch.lineage is None:
        table = batch.to_pyarrow()
        if not any(is_json(field.type) for field in table.schema):
            return None
        table = table.drop_columns([ROW_ID]) if ROW_ID in table.column_names else table
        batch = DocumentBatch.over(TableBlock(table), np.arange(len(table)))
    elif not batch.lineage.origin.keeps_bytes:
        return None
    return memoryview(encode_jsonl(batch).data)  # type: ignore[arg-type]


def _stored_hashes(origin: JsonlBlock, rows: Array) -> tuple[Array, Array] | None:
    """Return the hashes of unchanged records, which are those they were read with; None if unknown."""
    hashes = origin.known_identity
    return None if hashes is None else (hashes[0][rows], hashes[1][rows])


def _spliced(
    origin: JsonlBlock, rows: Array, columns: Mapping[str, pa.Array], changed_rows: Mapping[str, Array]
) -> Encoded:
    """Replace values that changed, insert fields that are new. `changed_rows`: as Lineage.changed."""
    names = list(columns)
    _, start, length = origin.literals(names)
    edits = []  # (row, from, to, order, literal bytes start, literal length) per edit, as arrays
    extra: list[Array] = []
    base = 0
    close, n_fields = origin.close[rows], origin.n_fields[rows].copy()
    for k, name in enumerate(names):
        column = columns[name]
        present = length[rows, k] >= 0
        position = np.flatnonzero(present & changed_rows[name] if name in changed_rows else present)
        if len(position):  # what a stage wrote may be what was there
            position = position[
                ~_unchanged(
                    column if len(position) == len(rows) else take_or_null(column, position),
                    origin,
                    name,
                    rows[position],
                )
            ]
        changed = np.zeros(len(rows), bool)
        changed[position] = True
        absent = np.flatnonzero(~present & np.asarray(column.is_valid()))  # an absent field and null mean the same
        new = np.flatnonzero(changed | ~present)  # of these alone the literals are needed
        data, offsets = literals_of(column if len(new) == len(rows) else take_or_null(column, new))
        at_new = np.searchsorted(new, position)
        edits.append(
            (
                position,
                start[rows[position], k],
                start[rows[position], k] + length[rows[position], k],
                k,
                base + offsets[at_new],
                np.diff(offsets)[at_new],
            )
        )
        base += len(data)
        extra.append(data)
        if len(absent):
            absent_new = np.searchsorted(new, absent)
            with_key, key_offsets = _with_prefix(data, offsets, absent_new, _key(name), n_fields[absent] > 0)
            edits.append((absent, close[absent], close[absent], k, base + key_offsets[:-1], np.diff(key_offsets)))
            base += len(with_key)
            extra.append(with_key)
            n_fields[absent] += 1
    row, start_at, stop_at, order, lit, lit_len = (
        np.concatenate([np.broadcast_to(e[i], len(e[0])) for e in edits]) for i in range(6)
    )
    by = np.lexsort((order, start_at, row))
    ptr = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(np.bincount(row, minlength=len(rows)), out=ptr[1:])
    # assemble() wants one contiguous run of edit bytes in edit order
    edit_data, edit_off = json_text.gather(_joined(extra), lit[by], lit_len[by])
    data, offsets = splice.assemble(
        origin.buf,
        origin.start,
        origin.end,
        rows,
        ptr,
        np.ascontiguousarray(start_at[by]),
        np.ascontiguousarray(stop_at[by]),
        edit_off,
        edit_data,
    )
    return Encoded(data, offsets, _hashes(data, offsets, _stored_hashes(origin, rows), np.flatnonzero(np.diff(ptr))))


def _hashes(
    data: Array, offsets: Array, hashes_before: tuple[Array, Array] | None, edited: Array
) -> tuple[Array, Array] | None:
    """Return the hashes of lines of which only some were edited, reusing the existing hashes of the others."""
    if hashes_before is None:
        return None
    starts = offsets[:-1][edited]
    hashes_before[0][edited], hashes_before[1][edited] = hash128.hash_spans(
        data, starts, offsets[1:][edited] - starts - 1
    )
    return hashes_before


def _rebuilt(batch: DocumentBatch, origin: JsonlBlock, rows: Array, columns: Mapping[str, pa.Array]) -> Encoded:
    """Build rows that lose fields.

    The others keep their order and, unless they changed, their raw values. New ones follow.
    """
    names = batch.get_columns()
    raw = [n for n in names if n not in columns]
    _, start, length = origin.literals(names)
    start, length = start[rows], length[rows]
    n_buf, base = len(origin.buf), 0
    rank = np.where(length >= 0, start, n_buf)  # a changed value stays where the old one was
    extra: list[Array] = []
    for k, name in enumerate(names):
        if name in raw:
            continue
        column = columns[name]
        data, offsets = literals_of(column)
        present = length[:, k] >= 0
        same = present & _unchanged(column, origin, name, rows) if present.any() else present
        drop = ~present & np.asarray(column.is_null())
        start[:, k] = np.where(same, start[:, k], n_buf + base + offsets[:-1])
        length[:, k] = np.where(same, length[:, k], np.where(drop, -1, np.diff(offsets)))
        base += len(data)
        extra.append(data)
    keys = [_key(n) for n in names]
    return Encoded(*join.join_rows(origin.buf, _joined(extra), start, length, keys, rank))


def _from_columns(rows: Array, columns: dict[str, pa.Array], with_nulls: bool) -> Encoded:
    """Encode the rows `at` of columns, with all members encoded anew."""
    n, k = len(rows), len(columns)
    start, length = np.empty((n, k), np.int64), np.empty((n, k), np.int64)
    parts, base = [], 0
    for j, column in enumerate(columns.values()):
        column = take_or_null(column, rows)
        data, offsets = literals_of(column)
        start[:, j], length[:, j] = offsets[:-1] + base, np.diff(offsets)
        if not with_nulls:
            length[np.asarray(column.is_null()), j] = -1
        parts.append(data)
        base += len(data)
    keys = [_key(n) for n in columns]
    return Encoded(*join.join_rows(np.empty(0, np.uint8), _joined(parts), start, length, keys))


def _joined(parts: list[Array]) -> Array:
    return np.concatenate(parts) if parts else np.empty(0, np.uint8)


def _key(name: str) -> bytes:
    return json.dumps(name, ensure_ascii=False).encode() + b":"


def _interleave(batch: DocumentBatch, new: Array) -> Encoded:
    """Encode rows with a record and rows without one separately, then restore their order."""
    old_at, new_at = np.flatnonzero(~new), np.flatnonzero(new)
    old = encode_jsonl(batch.take(old_at))
    # Only what a stage gave, in its order and without nulls: which fields a block has depends on its other records, and
    # the output must not.
    assert batch.lineage is not None
    is_present = set(batch.get_columns())
    values = {n: batch.exact_column(n) for n in batch.lineage.columns if n in is_present}
    out = _from_columns(new_at, values, with_nulls=False)
    data = np.concatenate([old.data, out.data])
    start, length = np.empty(len(new), np.int64), np.empty(len(new), np.int64)
    start[old_at], length[old_at] = old.offsets[:-1], np.diff(old.offsets)
    start[new_at], length[new_at] = out.offsets[:-1] + len(old.data), np.diff(out.offsets)
    return Encoded(*json_text.gather(data, start, length))


def _with_prefix(data: Array, offsets: Array, rows: Array, prefix: bytes, comma: Array) -> tuple[Array, Array]:
    """Return `,"name":literal` for the rows `at` (the comma only where `comma`)."""
    lens = np.diff(offsets)[rows]
    n_prefix = np.where(comma, len(prefix) + 1, len(prefix))
    out_offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(lens + n_prefix, out=out_offsets[1:])
    out = np.empty(int(out_offsets[-1]), np.uint8)
    lead = np.frombuffer(b"," + prefix, np.uint8)
    json_text.copy_spans(lead, np.where(comma, 0, 1), n_prefix, out, out_offsets[:-1])
    json_text.copy_spans(data, offsets[:-1][rows], lens, out, out_offsets[:-1] + n_prefix)
    return out, out_offsets


def _unchanged(new: pa.Array, origin: JsonlBlock, name: str, rows: Array) -> Array:
    """Return a mask of the rows that still have the value of the record they came from.

    "1" for 1 and 1 for true are changes, 1.0 for 1 is none.

    Texts are compared only where their lengths agree: a stage that cuts a large document into many pieces makes many
    rows of one record, and taking its whole text once for each of them would need their number times its size.
    """
    if pa.types.is_nested(new.type):
        return _same_nested(new, take_or_null(origin.column(name), rows))
    if not is_text(new.type):
        return same_values(new, origin.exact(name, rows))
    same: Array = np.asarray(new.is_null()) & (origin.kinds(name)[rows] == NULL)
    if len(rows) * _FEW < origin.n_rows and len(np.unique(rows)) == len(rows):  # decoded by themselves
        texts, rows = texts_of_column(origin.exact(name, rows)), np.arange(len(rows))
    else:
        texts = texts_of_column(origin.column(name))
    old_bytes, new_bytes = (pc.fill_null(pc.binary_length(t), -1).to_numpy(zero_copy_only=False) for t in (texts, new))
    alike = np.flatnonzero((new_bytes >= 0) & (old_bytes[rows] == new_bytes))
    same[alike] = same_values(take_or_null(new, alike), take_or_null(texts, rows[alike]))
    return same


def _same_nested(new: pa.Array, old: pa.Array) -> Array:
    """Compare two columns of Arrow's own nested types, treating a missing member like a null one."""
    if not pa.types.is_nested(old.type):
        old = as_json(old)
    pairs = zip(values_of(new), values_of(old), strict=True)
    with deep_recursion():
        same = [
            (a is None and b is None)
            or (isinstance(a, (dict, list)) and isinstance(b, (dict, list)) and canonical_text(a) == canonical_text(b))
            for a, b in pairs
        ]
    return np.array(same, bool)


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
    others, emptied = np.flatnonzero((rows >= 0) & ~many), np.flatnonzero((rows >= 0) & many)
    parts = [
        plain.take(others),
        plain.take(emptied).with_column(field, pa.array([""] * len(emptied), pa.large_string())),
    ]
    block = JsonlBlock.parse(np.concatenate([encode_jsonl(part).data for part in parts]), [field])
    order = np.concatenate([others, emptied])
    files, offsets = batch.places()
    block.places = (files[order], offsets[order])
    at = np.full(len(many), -1, np.int64)
    at[order] = np.arange(len(order))
    return batch.replaced_records(Lineage(block, at, columns, lineage.hidden, lineage.only))
