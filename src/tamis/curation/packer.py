"""Repack the output: files of a size, splits by content, another order. Runs as a process, under the budget.

Reads the files of the last pass (plain JSONL, or a format of rows) one by one, as tables: the documents, or the lines
of a JSONL file as bytes. A document's split and its position in the new order follow from hashes of its text alone, so
they do not depend on how the pass was cut. To shuffle, rows are sorted by keys on disk
(key_order.py). Everything is written into FOLDER/packed; FOLDER/packed.json, written last, lists the files. A call that
is killed starts over.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from tamis import files
from tamis.curation.key_order import KEY, in_key_order
from tamis.curation.state import PackedFile, PackedFiles, PackTask, packed_file
from tamis.curation.writing import cuts_of
from tamis.dedup.task_process import perform_task, report_share
from tamis.formats import registry
from tamis.formats.compression.codecs import codec_of
from tamis.formats.compression.streams import StreamWriter
from tamis.formats.jsonl.block import JsonlBlock
from tamis.formats.schema.run_schema import kept_metadata, to_output_schema
from tamis.formats.table_block import row_bytes
from tamis.formats.table_files import RowChunks, plain_types
from tamis.kernels.buffers import string_buffers
from tamis.kernels.records.hash128 import hash_arrow_strings
from tamis.stages.text.tokens.stages import SPLIT_SEED
from tamis.tasks import DocumentBatch

_LINE, _SPLIT = "line", "__tamis_split"
_ORDER_SEED = 0x6F72646572
Array = np.ndarray[Any, Any]


def pack(folder: str, task: PackTask) -> None:
    """Write the repacked files of the output, and their list, into a folder."""
    target = os.path.join(folder, "packed")
    shutil.rmtree(target, ignore_errors=True)
    os.makedirs(target)
    names = list(task.split) or ["train"]
    schema = _output_schema(task.parts) if registry.is_table(f".{task.extension}") else None
    outputs = {name: _SplitFiles(target, name, task.extension, task.file_bytes, schema) for name in names}
    progress = report_share("packing")
    total = max(1, sum(os.path.getsize(p) for p in task.parts))
    tables = _tables(task, progress, total)
    if task.shuffle is not None:
        ordered = in_key_order((table for table, _ in tables), os.path.join(folder, "buckets"), total, task.room_bytes)
        tables = ((table.drop_columns([KEY, _SPLIT]), table[_SPLIT].to_numpy()) for table in ordered)
    cuts = np.array(cuts_of(task.split), np.uint64)
    for table, split in tables:
        which = np.searchsorted(cuts, split, side="right")
        for i, name in enumerate(names):
            rows = np.flatnonzero(which == i)
            if len(rows):
                outputs[name].add(table if len(rows) == len(table) else table.take(pa.array(rows)))
    packed_file(folder).write(PackedFiles([file for name in names for file in outputs[name].close()]))


# -- reading ----------------------------------------------------------------------------------------------------------
def _tables(task: PackTask, progress: Any, total: int) -> Iterator[tuple[pa.Table, Array]]:
    """Yield the rows of each file, and the hash that assigns each row to a split.

    With a seed, a column holds the key of the row's position in the output.
    """
    done = 0
    for path in task.parts:
        table, texts = _read(path, task.text_field)
        parts = string_buffers(texts)
        split, _ = hash_arrow_strings(parts.offsets, parts.data, parts.validity, SPLIT_SEED)
        if task.shuffle is not None:
            keys, _ = hash_arrow_strings(parts.offsets, parts.data, parts.validity, _ORDER_SEED ^ task.shuffle)
            table = table.append_column(KEY, pa.array(keys)).append_column(_SPLIT, pa.array(split))
        done += os.path.getsize(path)
        progress(done / total)
        if len(table):
            yield table, split


def _read(path: str, text_field: str) -> tuple[pa.Table, pa.Array]:
    """Return the rows and texts of a file; the lines of JSONL unchanged."""
    if registry.is_table(path):
        rows = registry.table_format(path)
        n_rows = rows.describe(path).n_rows
        # Arrow cannot pick rows out of views (pyarrow 26); they are views again when they are written.
        parts = [plain_types(part) for _, part in rows.iter_rows(path, 0, n_rows)]
        table = pa.concat_tables(parts) if parts else plain_types(rows.read_schema(path).empty_table())
        return table, DocumentBatch(data=table).texts(text_field)
    with open(path, "rb") as file:
        data = np.frombuffer(file.read(), np.uint8)
    ends = np.flatnonzero(data == 10)
    offsets = np.concatenate([[0], ends + 1]).astype(np.int64)
    lines = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    block = JsonlBlock.parse(data, [text_field])
    return pa.table({_LINE: lines}), DocumentBatch.over(block, np.arange(block.n_rows)).texts(text_field)


def _output_schema(parts: Sequence[str]) -> pa.Schema | None:
    """Return the schema of files of rows: that of the last pass, which gave all its files the same one."""
    if not parts:
        return None
    schema = registry.table_format(parts[0]).read_schema(parts[0])
    return pa.schema(list(schema), kept_metadata(schema))


# -- writing ----------------------------------------------------------------------------------------------------------
class _SplitFiles:
    """Files of one split, of about `file_bytes` before compression; named when their number is known."""

    def __init__(
        self, folder: str, name: str, extension: str, file_bytes: int | None, schema: pa.Schema | None = None
    ) -> None:
        self._folder, self._name, self._extension, self._most = folder, name, extension, file_bytes
        self._schema = schema
        self._written: list[PackedFile] = []
        self._open: _TableFile | _LineFile | None = None

    def add(self, table: pa.Table) -> None:
        sizes = row_bytes(table)
        first = 0
        while first < len(table):
            if self._open is None:
                self._open = self._next()
            last = len(table)
            if self._most is not None:
                room = self._most - self._open.n_bytes
                last = first + int(np.searchsorted(np.cumsum(sizes[first:]), room, side="right"))
                if not self._open.n_rows:  # a row that is larger than a file gets one of its own
                    last = max(last, first + 1)
            if last > first:
                self._open.write(table.slice(first, last - first), sizes[first:last])
            first = last
            if self._most is not None and (first < len(table) or self._open.n_bytes >= self._most):
                self._finish()

    def _next(self) -> _TableFile | _LineFile:
        path = os.path.join(self._folder, f"{self._name}-{len(self._written):05d}.{self._extension}")
        return _LineFile(path) if self._schema is None else _TableFile(path, self._schema)

    def _finish(self) -> None:
        if self._open is not None:
            self._open.close()
            path = self._open.path
            self._written.append(PackedFile("", path, self._name, self._open.n_rows, os.path.getsize(path)))
            self._open = None

    def close(self) -> list[PackedFile]:
        """Close the files and return a description of each."""
        self._finish()
        n = len(self._written)
        names = (f"{self._name}-{i:05d}-of-{n:05d}.{self._extension}" for i in range(n))
        return [replace(file, name=name) for file, name in zip(self._written, names, strict=True)]


class _LineFile:
    """Lines as they are, compressed as the name of the file says."""

    def __init__(self, path: str) -> None:
        self.path, self.n_rows, self.n_bytes = path, 0, 0
        self._out = StreamWriter(files.fresh(path), codec_of(path))

    def write(self, table: pa.Table, sizes: Array) -> None:
        for chunk in table[_LINE].chunks:
            _, offsets, data = chunk.buffers()
            ends = np.frombuffer(offsets, np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
            if len(chunk):
                self._out.write(memoryview(data)[int(ends[0]) : int(ends[-1])])
        self.n_rows += len(table)
        self.n_bytes += int(sizes.sum())

    def close(self) -> None:
        self._out.finish()
        os.fsync(self._out.fileno())
        self._out.close()


class _TableFile:
    """Rows in the output schema, in the format that the extension names."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self.path, self.n_rows, self.n_bytes, self._schema = path, 0, 0, schema
        self._writer = registry.table_format(path).TableWriter(files.fresh(path), schema)
        self._chunks = RowChunks(self._writer.write)

    def write(self, table: pa.Table, sizes: Array) -> None:
        self._chunks.add(to_output_schema(table, self._schema), self.n_bytes + np.cumsum(sizes) - sizes)
        self.n_rows += len(table)
        self.n_bytes += int(sizes.sum())

    def close(self) -> None:
        self._chunks.flush()
        self._writer.close()
        with open(self.path, "rb") as file:
            os.fsync(file.fileno())


def main(arguments: Sequence[str]) -> int:
    return perform_task(arguments, PackTask, pack, "packing the output")
