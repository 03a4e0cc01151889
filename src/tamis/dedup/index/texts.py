"""Entries with texts: of each document that a substring deduplication kept, its place and its text as it is compared.

Only a text says whether a window of another one occurs in it, so an entry holds all of it, compressed. A run that is
compared with the entry reads it like input, before its own: row N of the file is the document with offset N.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tamis.dedup.records import runs_of
from tamis.errors import FormatError
from tamis.failures import is_memory_failure
from tamis.formats.arrow.column_places import BatchPlaces
from tamis.formats.parquet import format as parquet
from tamis.formats.scratch.stored_arrays import read_into

TEXT = "text"
_SCHEMA = pa.schema([("file", pa.int32()), ("offset", pa.int64()), (TEXT, pa.large_string())])
_ROW_GROUP_BYTES = 16_000_000  # of text: read at once by a worker


def write_texts(path: str, tables: Iterable[pa.Table], n_files: int) -> NDArray[np.int64]:
    """Write the file of an entry; return the number of documents of each of its input files."""
    by_file = np.zeros(n_files, np.int64)
    with open(path, "wb") as sink:
        # Texts differ: a dictionary of them would be written in addition.
        with pq.ParquetWriter(sink, _SCHEMA, compression="zstd", use_dictionary=False, write_statistics=False) as out:
            for group in _grouped(tables):
                out.write_table(group, row_group_size=max(1, group.num_rows * _ROW_GROUP_BYTES // group.nbytes))
                by_file += np.bincount(group["file"].to_numpy(), minlength=n_files)
        sink.flush()
        os.fsync(sink.fileno())
    return by_file


def _grouped(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Join small tables, so that each is a row group of some size."""
    waiting: list[pa.Table] = []
    n_bytes = 0
    for table in tables:
        waiting.append(table)
        n_bytes += table.nbytes
        if n_bytes >= _ROW_GROUP_BYTES:
            yield pa.concat_tables(waiting)
            waiting, n_bytes = [], 0
    if waiting:
        yield pa.concat_tables(waiting)


def collected_texts(paths: Sequence[str]) -> Iterator[pa.Table]:
    """Yield what a pass collected (KeptTexts of substrings/stages.py), in the order of the input."""
    batches: list[BatchPlaces] = runs_of(paths, "a file of kept texts", lambda batch, _: batch)
    for batch in batches:
        n = batch.n_rows
        ends = batch.ends(TEXT).read(0, n + 1)
        data = np.empty(int(ends[-1] - ends[0]), np.uint8)
        read_into(batch.path, batch.data_at(TEXT) + int(ends[0]), data)
        buffers = [None, pa.py_buffer(ends - ends[0]), pa.py_buffer(data)]
        columns = [
            pa.array(batch.values("file").read(0, n)),
            pa.array(batch.values("offset").read(0, n)),
            pa.LargeStringArray.from_buffers(n, buffers[1], buffers[2]),
        ]
        yield pa.table(columns, schema=_SCHEMA)


def entry_texts(path: str) -> Iterator[pa.Table]:
    """Yield the documents of an entry, a row group at a time."""
    return _row_groups(path, _SCHEMA.names)


def count_texts(path: str) -> int:
    return int(_open(path).metadata.num_rows)


def text_places(path: str) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int64]]]:
    """Yield where the documents of an entry were in the input of their run, as (files, offsets)."""
    for table in _row_groups(path, ["file", "offset"]):
        yield table["file"].to_numpy(), table["offset"].to_numpy()


def _row_groups(path: str, columns: list[str]) -> Iterator[pa.Table]:
    file = _open(path)
    for k in range(file.num_row_groups):
        try:
            table = file.read_row_group(k, columns=columns, use_threads=False)
        except (pa.ArrowException, OSError) as exc:
            raise _damaged(path, exc) from None
        yield table


def _open(path: str) -> pq.ParquetFile:
    try:
        file = parquet.open_file(path)
        schema = file.schema_arrow
    except (pa.ArrowException, OSError) as exc:
        raise _damaged(path, exc) from None
    if not schema.equals(_SCHEMA):
        raise FormatError(f"{path} has other columns than an index ({', '.join(schema.names)}); the index is damaged")
    return file


def _damaged(path: str, exc: Exception) -> Exception:
    if is_memory_failure(exc):
        return MemoryError(str(exc))
    return FormatError(f"{path} cannot be read ({exc}); the index is damaged: make it anew")
