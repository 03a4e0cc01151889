"""Whole files as one batch."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.errors import FormatError
from tamis.formats.whole_file import read_whole_file


def test_jsonl_plain_and_compressed(tmp_path: Path) -> None:
    data = b'\xef\xbb\xbf{"a":1}\r\n\n{"a":2}'
    (tmp_path / "a.jsonl").write_bytes(data)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(data))
    for name in ("a.jsonl", "a.jsonl.gz"):
        batch = read_whole_file(str(tmp_path / name))
        assert (batch.num_items, batch.column("a").to_pylist()) == (2, [1, 2])


def test_an_empty_file_is_an_empty_batch(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"")
    assert read_whole_file(str(tmp_path / "a.jsonl")).num_items == 0


def test_the_first_bad_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"a":1}\n[2]\n')
    with pytest.raises(FormatError, match="record at byte 8: valid JSON, but not an object"):
        read_whole_file(str(tmp_path / "a.jsonl"))


def test_parquet(tmp_path: Path) -> None:
    table = pa.table({"a": list(range(100)), "t": ["x"] * 100})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=30)
    batch = read_whole_file(str(tmp_path / "a.parquet"))
    assert batch.column("a").to_pylist() == list(range(100))
    pq.write_table(table.slice(0, 0), tmp_path / "b.parquet")
    assert read_whole_file(str(tmp_path / "b.parquet")).num_items == 0
