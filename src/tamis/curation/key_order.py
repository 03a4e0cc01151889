"""Rows in the order of their keys, whatever fits into memory: through buckets on disk, each sorted in memory.

The order depends on the keys alone, neither on the budget nor on the tables that rows come in.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from tamis import files

KEY = "__tamis_key"  # the column of keys, of 64 bits
_BYTES_IN_MEMORY = 6  # for each byte of a bucket: as it is read, sorted, and written
_MAX_BUCKETS = 512
_MUCH_LARGER = 1.5  # than a bucket should be


def in_key_order(tables: Iterator[pa.Table], folder: str, n_bytes: int, room_bytes: int) -> Iterator[pa.Table]:
    """Yield all rows in the order of their keys; rows with equal keys in the order of the input.

    `n_bytes`: of all rows, at least; `folder`: for the buckets, removed at the end.
    """
    return _in_order(tables, folder, n_bytes, max(1, room_bytes // _BYTES_IN_MEMORY), range(1 << 32))


def _in_order(
    tables: Iterator[pa.Table], folder: str, n_bytes: int, bucket_bytes: int, keys: range
) -> Iterator[pa.Table]:
    """Yield the rows whose keys begin with these 32 bits.

    A bucket that turns out much larger than it should be is divided in the same way: the size of compressed files says
    little about that of their rows.
    """
    n = max(1, min(_MAX_BUCKETS, len(keys), -(-n_bytes // bucket_bytes)))
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    paths = [os.path.join(folder, f"{k:05d}.arrow") for k in range(n)]
    with contextlib.ExitStack() as stack:
        streams: dict[int, Any] = {}
        for table in tables:
            first_bits = table[KEY].to_numpy() >> np.uint64(32)
            bucket = ((first_bits - np.uint64(keys.start)) * np.uint64(n) // np.uint64(len(keys))).astype(np.int64)
            for k in np.unique(bucket).tolist():
                if k not in streams:
                    sink = stack.enter_context(files.create(paths[k], 0o600))
                    streams[k] = stack.enter_context(pa.ipc.new_stream(sink, table.schema))
                streams[k].write_table(table.take(pa.array(np.flatnonzero(bucket == k))))
    for k, path in enumerate(paths):
        if os.path.exists(path):
            part = keys[-(-k * len(keys) // n) : -(-(k + 1) * len(keys) // n)]
            yield from _bucket(path, bucket_bytes, part)
            os.unlink(path)
    os.rmdir(folder)


def _bucket(path: str, bucket_bytes: int, keys: range) -> Iterator[pa.Table]:
    """Yield the rows of a bucket in order."""
    size = os.path.getsize(path)
    with pa.OSFile(path, "rb") as source, pa.ipc.open_stream(source) as stream:
        if size > _MUCH_LARGER * bucket_bytes and len(keys) > 1:
            batches = (pa.Table.from_batches([batch]) for batch in stream)
            yield from _in_order(batches, f"{path}.parts", size, bucket_bytes, keys)
        else:
            table = stream.read_all()
            yield table.take(pa.array(np.argsort(table[KEY].to_numpy(), kind="stable")))
