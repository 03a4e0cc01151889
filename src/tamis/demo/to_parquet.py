"""JSON lines of demo documents from stdin -> one Parquet file. Run as `python -m tamis.demo.to_parquet FILE`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ROW_GROUP_BYTES = 4_000_000

_META = pa.struct([("kind", pa.string()), ("part", pa.int64()), ("copy", pa.int64())])
SCHEMA = pa.schema([("id", pa.string()), ("text", pa.string()), ("source", pa.string()), ("meta", _META)])


def write(lines: Iterable[bytes], path: str) -> None:
    """Row groups of about 4 MB; `meta` becomes a struct."""
    # Dictionaries and statistics of long texts cost memory and help nobody.
    with pq.ParquetWriter(path, SCHEMA, compression="zstd", use_dictionary=False, write_statistics=False) as writer:
        rows: list[dict[str, Any]] = []
        n_bytes = 0
        for line in lines:
            rows.append(json.loads(line))
            n_bytes += len(line)
            if n_bytes >= ROW_GROUP_BYTES:
                writer.write_table(pa.Table.from_pylist(rows, schema=SCHEMA))
                rows, n_bytes = [], 0
        if rows:
            writer.write_table(pa.Table.from_pylist(rows, schema=SCHEMA))


if __name__ == "__main__":
    write(sys.stdin.buffer, sys.argv[1])
