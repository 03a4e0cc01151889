"""Committed output files written again as others: cut in parts, or joined (run/output/file_size.py says which).

Reads a file piece by piece, so that memory does not depend on the size of files: 1 MiB of lines (or one line), or one
batch and one group of rows. Compressed lines and rows are decoded and encoded again: what partitions wrote is then one
stream, or groups of the usual size, whatever the partitions were. Rows and content hashes are compared with what was
committed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from tamis import files
from tamis.engine.messages import StagedFile
from tamis.engine.schema import FileKind
from tamis.engine.units import Regroup
from tamis.engine.worker.config import OutputSpec
from tamis.errors import InputChanged
from tamis.formats import registry
from tamis.formats.compression.streams import StreamReader, StreamWriter
from tamis.formats.schema import run_schema
from tamis.formats.table_block import row_bytes, row_hashes
from tamis.formats.table_files import RowChunks
from tamis.kernels.records import hash128
from tamis.memory.release import reusing_large_blocks
from tamis.stores.urls import is_bucket

_READ_BYTES = 1 << 20
_LINE_FEED = 10
Array = np.ndarray[Any, Any]


def regroup(paths: Sequence[str], work: Regroup, base: str, spec: OutputSpec) -> list[StagedFile]:
    """Write files one after the other, beginning another file at each of the cuts."""
    facts = run_schema.join_facts(run_schema.facts_from_json(json.loads(text)) for text in work.observed)
    observed = json.dumps(run_schema.facts_to_json(facts), sort_keys=True) if work.observed else None
    about = StagedFile(
        base + ".out",
        FileKind.OUTPUT,
        extension=spec.extension,
        schema=work.schema,
        observed=observed,
        is_sized=True,
        partition=work.partition,
    )
    if len(paths) == 1 and not work.cuts and not is_bucket(paths[0]):
        files.publish(paths[0], about.path)  # only the name changes
        n_bytes = os.path.getsize(about.path)
        return [replace(about, rows=work.n_rows, n_bytes=n_bytes, content=work.content, data_bytes=work.data_bytes)]
    parts = OutputParts(work.cuts, about, spec)
    try:
        with reusing_large_blocks():
            for path in paths:
                _add_records(path, parts, spec)
    except BaseException:
        parts.abort()
        raise
    staged = parts.close()
    content = sum(int(f.content or "0", 16) for f in staged) % (1 << 128)
    if (sum(f.rows for f in staged), f"{content:032x}") != (work.n_rows, work.content):
        raise InputChanged(f"{' and '.join(paths[:2])} are not as this run committed them")
    return staged


def _add_records(path: str, parts: OutputParts, spec: OutputSpec) -> None:
    if spec.format in registry.LINES:
        for chunk in line_chunks(path):
            parts.add_lines(chunk)
    else:
        rows = registry.load_table_format(spec.format)
        for _, table in rows.iter_rows(path, 0, rows.describe(path).n_rows):
            parts.add_rows(table)


class OutputParts:
    """New files of lines or rows, of which one is open."""

    def __init__(self, cuts: Sequence[int], about: StagedFile, spec: OutputSpec) -> None:
        """Start without parts. `about`: what all of them have in common."""
        self._cuts, self._about, self._spec = list(cuts), about, spec
        self._offset = 0  # of the next record, in bytes of records
        self._staged: list[StagedFile] = []
        self._out: Any = None
        self._rows = self._data_bytes = self._content = 0
        self._chunks: RowChunks | None = None

    def add_lines(self, data: Array) -> None:
        """Append whole lines, each with its line feed."""
        ends = np.flatnonzero(data == _LINE_FEED) + 1
        starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
        for first, last in self._ranges(starts):
            self._open(None)
            begin, end = int(starts[first]), int(ends[last - 1])
            self._out.write(data[begin:end])
            lengths = ends[first:last] - starts[first:last] - 1
            hashes = hash128.hash_spans(data, starts[first:last], lengths)
            self._count(last - first, end - begin, hash128.sum128(*hashes))
        self._offset += len(data)

    def add_rows(self, table: pa.Table) -> None:
        sizes = row_bytes(table)
        starts = np.cumsum(sizes) - sizes
        for first, last in self._ranges(starts):
            part = table.slice(first, last - first)
            self._open(part.schema)
            assert self._chunks is not None
            self._chunks.add(part, starts[first:last] + (self._data_bytes - int(starts[first])))
            self._count(part.num_rows, int(sizes[first:last].sum()), hash128.sum128(*row_hashes(part)))
        self._offset += int(sizes.sum())

    def _ranges(self, starts: Array) -> Iterator[tuple[int, int]]:
        """Yield the records that go to the same file, as (first, after the last), and begin files in between."""
        first = 0
        while self._cuts:
            cut = int(np.searchsorted(starts, self._cuts[0] - self._offset))
            if cut == len(starts):
                break
            if cut > first:
                yield first, cut
            self._close_file()
            del self._cuts[0]
            first = cut
        if first < len(starts):
            yield first, len(starts)

    def _open(self, schema: pa.Schema | None) -> None:
        if self._out is not None:
            return
        path = files.fresh(f"{self._about.path}{len(self._staged)}")
        if schema is None:
            self._out = StreamWriter(path, self._spec.codec)
        else:
            writer = registry.load_table_format(self._spec.format).TableWriter
            self._out = writer(path, schema, **self._spec.table_options())
            self._chunks = RowChunks(self._out.write)
        self._path = path

    def _count(self, n_rows: int, data_bytes: int, content: int) -> None:
        self._rows += n_rows
        self._data_bytes += data_bytes
        self._content += content

    def _close_file(self) -> None:
        if self._out is None:
            return
        if self._chunks is not None:
            self._chunks.flush()
        self._out.close()
        self._out = self._chunks = None
        self._staged.append(
            replace(
                self._about,
                path=self._path,
                rows=self._rows,
                n_bytes=os.path.getsize(self._path),
                content=f"{self._content % (1 << 128):032x}",
                data_bytes=self._data_bytes,
            )
        )
        self._rows = self._data_bytes = self._content = 0

    def close(self) -> list[StagedFile]:
        """Return the files in order."""
        self._close_file()
        return self._staged

    def abort(self) -> None:
        if self._out is not None:
            self._out.abort()


def line_chunks(path: str) -> Iterator[Array]:
    """Yield the lines of a file, plain or compressed, in arrays that end with a line feed."""
    with StreamReader.open(path) as reader:
        rest = b""
        while data := reader.read(_READ_BYTES):
            end = data.rfind(b"\n") + 1
            if not end:
                rest += data
                continue
            yield np.frombuffer(rest + data[:end], np.uint8)
            rest = data[end:]
    if rest:
        raise InputChanged(f"{path} does not end with a line feed")
