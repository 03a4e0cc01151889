"""A whole file as one batch, for small results and for use outside of a run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tamis.errors import FormatError
from tamis.formats.compression.streams import StreamReader
from tamis.formats.jsonl.block import JsonlBlock
from tamis.formats.registry import TABLES, holds_rows, record_format, table_format
from tamis.formats.table_block import TableBlock
from tamis.stores.opening import open_input
from tamis.tasks import DocumentBatch

MAX_RECORD_BYTES = 64 << 20
_REMEDY = "run a pipeline over it to set bad records aside"

_MARK = b"\xef\xbb\xbf"


def read_whole_file(path: str, formats: Sequence[str] = ()) -> DocumentBatch:
    """Read all documents of a file; raise FormatError on the first bad record.

    `formats`: the formats that a reader declares for the file.
    """
    return read_whole_files([path], formats)


def read_whole_files(paths: Sequence[str], formats: Sequence[str] = ()) -> DocumentBatch:
    """Read all documents of several files as one batch, like `read_whole_file`."""
    if paths and not any(_is_table(path, formats) for path in paths):
        origin: JsonlBlock | TableBlock = _lines_of(paths)
    else:
        tables = [_table_of(path, formats) for path in paths]
        with_columns = tables if len(tables) == 1 else [t for t in tables if t.num_columns]
        origin = TableBlock(_joined(with_columns).combine_chunks())
    return _over(origin)


def _is_table(path: str, formats: Sequence[str]) -> bool:
    """Return True unless the file holds JSON lines."""
    is_declared = bool(formats) and all(name in TABLES for name in formats)
    return record_format(path) is not None or holds_rows(path) or is_declared


def _table_of(path: str, formats: Sequence[str]) -> pa.Table:
    if (records := record_format(path)) is not None:
        with open_input(path) as raw:
            decoded, _ = records.first_documents(raw, path, 1 << 62, MAX_RECORD_BYTES)
        if decoded.bad:
            frame = decoded.bad[0][1]
            raise FormatError(f"{path}: record at byte {frame.offset}: {frame.reason}; {_REMEDY}")
        assert decoded.table is not None
        return decoded.table
    return _rows_of(path) if _is_table(path, formats) else _over(_lines_of([path])).to_pyarrow()


def _over(origin: JsonlBlock | TableBlock) -> DocumentBatch:
    if origin.places is None:
        origin.places = np.zeros(origin.n_rows, np.int32), np.arange(origin.n_rows, dtype=np.int64)
    return DocumentBatch.over(origin, np.arange(origin.n_rows))


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    if not tables:
        return pa.table({})
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="permissive")


def _rows_of(path: str) -> pa.Table:
    rows = table_format(path)
    tables = [t for _, t in rows.iter_rows(path, 0, rows.describe(path).n_rows)]
    table = pa.concat_tables(tables).combine_chunks() if tables else pa.table({})
    return table.replace_schema_metadata(None)


def _lines_of(paths: Sequence[str]) -> JsonlBlock:
    """Return the records of files of JSON lines as one block."""
    parts, marks = [], []
    for path in paths:
        with StreamReader.open(path) as stream:
            data = b"".join(iter(lambda: stream.read(1 << 20), b""))
        marks.append(len(_MARK) if data.startswith(_MARK) else 0)
        data = data.removeprefix(_MARK)
        parts.append(data if not data or data.endswith(b"\n") else data + b"\n")
    block = JsonlBlock.parse(np.frombuffer(parts[0] if len(parts) == 1 else b"".join(parts), np.uint8))
    if block.bad:
        start, _, reason = block.bad[0]
        path, start = _place(paths, parts, start)
        raise FormatError(f"{path}: record at byte {start}: {reason}; {_REMEDY}")
    begins = np.cumsum([0, *map(len, parts)])
    numbers = np.searchsorted(begins, block.start, side="right") - 1
    numbers = np.minimum(numbers, max(0, len(parts) - 1))
    offsets = block.start - begins[numbers] + np.array(marks or [0], np.int64)[numbers]
    block.places = numbers.astype(np.int32), offsets.astype(np.int64)
    return block


def _place(paths: Sequence[str], parts: Sequence[bytes], start: int) -> tuple[str, int]:
    """Return the file and the offset in it of an offset in all parts together."""
    for path, part in zip(paths, parts, strict=True):
        if start < len(part):
            return path, start
        start -= len(part)
    raise AssertionError("an offset beyond all files")
