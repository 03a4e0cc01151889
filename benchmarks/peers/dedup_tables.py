"""Exact deduplication as one line of DuckDB or polars: `python dedup_tables.py duckdb|polars INPUT OUTPUT`.

Runs in the environment of these packages. JSONL in, JSONL out, one document of each text; no limit of memory, default
settings.
"""

from __future__ import annotations

import sys


def with_duckdb(source: str, target: str) -> None:
    import duckdb

    duckdb.sql(
        f"COPY (SELECT DISTINCT ON (text) * FROM read_json('{source}/*.jsonl', format='newline_delimited')) "
        f"TO '{target}' (FORMAT json)"
    )


def with_polars(source: str, target: str) -> None:
    import polars

    polars.scan_ndjson(f"{source}/*.jsonl").unique(subset="text", keep="any").sink_ndjson(target, engine="streaming")


if __name__ == "__main__":
    {"duckdb": with_duckdb, "polars": with_polars}[sys.argv[1]](sys.argv[2], sys.argv[3])
