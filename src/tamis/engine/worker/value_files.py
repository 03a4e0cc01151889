"""Committed output files written again as one file for each value of some fields (`partition_by`).

Documents are sorted by their values in pieces of a few MB, which are appended to one temporary file; then the documents
of each value are gathered from there, one output file at a time. Open files and memory do not depend on the number of
values, but for 24 bytes for each value in each piece. Fields that the folders name are left out of the documents.
"""

from __future__ import annotations

import io
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, BinaryIO, Protocol

import numpy as np
import pyarrow as pa

from tamis import files
from tamis.engine.messages import StagedFile
from tamis.engine.schema import FileKind
from tamis.engine.units import Regroup
from tamis.engine.worker.config import OutputSpec
from tamis.engine.worker.regroup import OutputParts, line_chunks
from tamis.errors import InputChanged
from tamis.formats import registry
from tamis.formats.schema import run_schema
from tamis.formats.schema.type_names import from_json, to_json
from tamis.formats.table_block import row_hashes
from tamis.kernels.records import hash128
from tamis.tasks import DocumentBatch
from tamis.tasks.columns.python_values import python_values

_PIECE_BYTES = 8 << 20
_BATCH_BYTES = 128 << 10  # of sorted rows, of which one batch of each piece is in memory at a time
Array = np.ndarray[Any, Any]


def write_by_values(paths: Sequence[str], work: Regroup, base: str, spec: OutputSpec) -> list[StagedFile]:
    """Write the documents of some files as one file for each value of the fields, in the order of the values."""
    names = list(work.partition_by)
    keys = _Keys(names)
    is_lines = spec.format in registry.LINES
    with files.create(base + ".sorted", files.OWN) as file, open(base + ".sorted", "rb", buffering=0) as stored:
        spill: _Spill = _Lines(file, stored, names) if is_lines else _Rows(file, stored, names, spec.format)
        try:
            n_rows, content = spill.fill(paths, keys)
            if (n_rows, f"{content % (1 << 128):032x}") != (work.n_rows, work.content):
                raise InputChanged(f"{' and '.join(paths[:2])} are not as this run committed them")
            return [
                staged
                for number, key in enumerate(keys.in_order())
                for staged in _write_value(spill, key, f"{base}.out{number}", _about(work, keys.text(key), spec), spec)
            ]
        finally:
            files.remove(base + ".sorted")


def _about(work: Regroup, value: str, spec: OutputSpec) -> StagedFile:
    """Return the description of a file for a value, without what follows from its documents."""
    schema = observed = None
    if work.schema is not None:
        fields = from_json(json.loads(work.schema))
        schema = json.dumps(to_json(pa.schema([f for f in fields if f.name not in work.partition_by])))
    if work.observed:
        facts = run_schema.join_facts(run_schema.facts_from_json(json.loads(text)) for text in work.observed)
        kept = {name: fact for name, fact in facts.items() if name not in work.partition_by}
        observed = json.dumps(run_schema.facts_to_json(kept), sort_keys=True)
    return StagedFile("", FileKind.OUTPUT, extension=spec.extension, schema=schema, observed=observed, partition=value)


def _write_value(spill: _Spill, key: int, path: str, about: StagedFile, spec: OutputSpec) -> list[StagedFile]:
    parts = OutputParts([], replace(about, path=path), spec)
    try:
        spill.write(key, parts)
    except BaseException:
        parts.abort()
        raise
    return parts.close()


class _Keys:
    """The values of the fields that occurred, numbered."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._numbers: dict[tuple[str | None, ...], int] = {}

    def of(self, columns: Sequence[pa.Array]) -> Array:
        """Return the number of each row's values."""
        coded = [_coded(column) for column in columns]
        if not coded:
            return np.zeros(0, np.int64)
        rows = np.stack([codes for codes, _ in coded], axis=1)
        distinct, inverse = np.unique(rows, axis=0, return_inverse=True)
        numbers = [
            self._numbers.setdefault(
                tuple(texts[code] for (_, texts), code in zip(coded, row, strict=True)), len(self._numbers)
            )
            for row in distinct.tolist()
        ]
        return np.array(numbers, np.int64)[inverse.reshape(-1)]

    def in_order(self) -> list[int]:
        """Return the numbers by their values, missing ones first."""
        return [self._numbers[v] for v in sorted(self._numbers, key=lambda value: [text or "" for text in value])]

    def text(self, key: int) -> str:
        """Return the values of a number, as the commit log has them."""
        value = next(itertools.islice(self._numbers, key, None))
        return json.dumps(list(value))


def _coded(column: pa.Array) -> tuple[Array, list[str | None]]:
    """Return a code for each row, and the text of each code: None for a missing or empty value."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        encoded = column.dictionary_encode()
        texts: list[str | None] = [text or None for text in encoded.dictionary.to_pylist()]
        codes = encoded.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False).astype(np.int64)
        return codes, [*texts, None]
    by_text: dict[str | None, int] = {}
    codes = np.array([by_text.setdefault(_text_of(value), len(by_text)) for value in python_values(column)], np.int64)
    return codes, list(by_text)


def _text_of(value: Any) -> str | None:
    """Return a value as the text of a folder; None for a missing or empty one."""
    if value is None or value == "":
        return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


# -- documents sorted by value, in a temporary file -------------------------------------------------------------------
class _Spill(Protocol):
    def fill(self, paths: Sequence[str], keys: _Keys) -> tuple[int, int]:
        """Sort the documents of all files into the temporary file; return their number and content hash."""
        ...

    def write(self, key: int, parts: OutputParts) -> None:
        """Write the documents of a value; values come in the order of `keys.in_order()`."""
        ...


class _Extents:
    """Locations of the documents of each value: three numbers for each value in each piece."""

    def __init__(self) -> None:
        self._pieces: list[Array] = []
        self._by_key: dict[int, Array] = {}

    def add(self, keys: Array, starts: Array, ends: Array) -> None:
        self._pieces.append(np.stack([keys, starts, ends], axis=1))

    def of(self, key: int) -> Array:
        """Return (start, end) of the documents of a value in each piece that has some, in the order of the pieces."""
        if not self._by_key and self._pieces:
            table = np.concatenate(self._pieces)
            self._pieces = []
            table = table[np.argsort(table[:, 0], kind="stable")]
            firsts = np.flatnonzero(np.diff(table[:, 0], prepend=-1))
            for part in np.split(table, firsts[1:]):
                self._by_key[int(part[0, 0])] = part[:, 1:]
        return self._by_key[key]


def _stretches(keys: Array) -> tuple[Array, Array, Array]:
    """Return each key of sorted keys with the rows at which it begins and ends."""
    firsts = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[firsts], firsts, np.append(firsts[1:], len(keys))


class _Lines:
    """JSONL: the lines without the fields, as they will be written."""

    def __init__(self, file: BinaryIO, stored: io.FileIO, names: Sequence[str]) -> None:
        self._file, self._stored, self._names = file, stored, names
        self._extents, self._size = _Extents(), 0

    def fill(self, paths: Sequence[str], keys: _Keys) -> tuple[int, int]:
        n_rows = content = 0
        lines = registry.load_line_format("jsonl")
        for data in _pieces(paths):
            block = lines.parse(data, self._names)
            if block.bad:
                raise InputChanged(f"a line that this run wrote cannot be read: {block.bad[0][2]}")
            batch = DocumentBatch.over(block, np.arange(len(block.start)))
            n_rows += batch.num_items
            content += hash128.sum128(*block.identity())
            numbers = keys.of([batch.exact_column(name) for name in self._names])
            order = np.argsort(numbers, kind="stable")
            written = lines.written_lines(batch.take(order).drop_columns(self._names))
            ends = np.cumsum(written.lengths + 1) + self._size
            for piece in written.pieces:
                self._size += self._file.write(piece.data if isinstance(piece, np.ndarray) else piece)
            found, first, last = _stretches(numbers[order])
            starts = ends - (written.lengths + 1)
            self._extents.add(found, starts[first], ends[last - 1])
        self._file.flush()
        return n_rows, content

    def write(self, key: int, parts: OutputParts) -> None:
        for start, end in self._extents.of(key).tolist():
            parts.add_lines(np.frombuffer(os.pread(self._stored.fileno(), end - start, start), np.uint8))


def _pieces(paths: Sequence[str]) -> Iterator[Array]:
    """Yield whole lines in arrays of about the size of a piece, or one line."""
    waiting: list[Array] = []
    n_bytes = 0
    for chunk in itertools.chain.from_iterable(line_chunks(path) for path in paths):
        waiting.append(chunk)
        n_bytes += len(chunk)
        if n_bytes >= _PIECE_BYTES:
            yield np.concatenate(waiting)
            waiting, n_bytes = [], 0
    if waiting:
        yield np.concatenate(waiting)


class _Rows:
    """Rows of tables: each piece as small record batches, of which one is in memory at a time."""

    def __init__(self, file: BinaryIO, stored: io.FileIO, names: Sequence[str], format_name: str) -> None:
        self._file, self._stored, self._names = file, stored, names
        self._format = registry.load_table_format(format_name)
        self._extents = _Extents()
        self._firsts: list[int] = []  # row at which each batch begins
        self._n_rows = 0
        self._reader: Any = None
        self._open: dict[int, tuple[int, pa.Table]] = {}  # by piece: the number of a batch, and the batch
        self._pieces: list[int] = []  # row at which each piece begins

    def fill(self, paths: Sequence[str], keys: _Keys) -> tuple[int, int]:
        content, writer = 0, None
        tables = (
            table.replace_schema_metadata(None)
            for path in paths
            for _, table in self._format.iter_rows(path, 0, self._format.describe(path).n_rows)
        )
        for table in tables:
            content += hash128.sum128(*row_hashes(table))
            columns = [table.column(n) if n in table.column_names else pa.nulls(len(table)) for n in self._names]
            numbers = keys.of([c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in columns])
            order = np.argsort(numbers, kind="stable")
            rest = table.drop_columns([n for n in self._names if n in table.column_names])
            rest = rest.take(pa.array(order)).combine_chunks()
            if writer is None:
                writer = pa.ipc.new_file(self._file, rest.schema)
            found, first, last = _stretches(numbers[order])
            self._extents.add(found, first + self._n_rows, last + self._n_rows)
            self._pieces.append(self._n_rows)
            step = max(1, len(rest) * _BATCH_BYTES // max(1, rest.nbytes))
            for start in range(0, len(rest), step):
                self._firsts.append(self._n_rows + start)
                writer.write_table(rest.slice(start, step).combine_chunks())
            self._n_rows += len(rest)
        if writer is not None:
            writer.close()
        self._file.flush()
        return self._n_rows, content

    def write(self, key: int, parts: OutputParts) -> None:
        if self._reader is None:
            self._reader = pa.ipc.open_file(self._stored)
        for start, end in self._extents.of(key).tolist():
            piece = int(np.searchsorted(self._pieces, start, side="right")) - 1
            while start < end:
                number = int(np.searchsorted(self._firsts, start, side="right")) - 1
                if self._open.get(piece, (-1, None))[0] != number:
                    self._open[piece] = number, pa.table(self._reader.get_batch(number))
                batch = self._open[piece][1]
                first = start - self._firsts[number]
                taken = batch.slice(first, end - start)
                parts.add_rows(taken)
                start += len(taken)
