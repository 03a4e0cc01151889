"""tamis split on Parquet: rows in order, limits kept, types kept."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.errors import UsageError
from tamis.formats.splitting import ChunkLimit, split_file


def table_of(n: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(n), pa.int32()),
            "text": pa.array([None if i % 7 == 0 else "x" * (i % 50) for i in range(n)], pa.string()),
            "tag": pa.array(["a" if i % 2 else "b" for i in range(n)]).dictionary_encode(),
            "nested": pa.array([{"k": [i]} for i in range(n)], pa.struct([("k", pa.list_(pa.int64()))])),
        }
    ).replace_schema_metadata({"owner": "me"})


def plain(table: pa.Table) -> pa.Table:
    i = table.schema.get_field_index("tag")
    return table.set_column(i, "tag", table.column("tag").cast(pa.string()))


def test_rows_types_and_metadata_are_kept(tmp_path: Path) -> None:
    table = table_of(5000)
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=700, compression="snappy")
    done = split_file(tmp_path / "a.parquet", tmp_path / "out", ChunkLimit(40_000))
    assert done.paths[0].name == "a-00000.parquet"
    assert len(done.paths) > 4
    parts = [pq.read_table(p, partitioning=None) for p in done.paths]
    assert pa.concat_tables(parts).equals(plain(table))
    assert all(part.nbytes <= 41_000 for part in parts)
    assert (done.n_rows, done.unit, done.n_oversize) == (5000, "row", 0)
    assert parts[0].schema.metadata[b"owner"] == b"me"
    assert pq.ParquetFile(done.paths[0]).metadata.row_group(0).column(0).compression == "SNAPPY"


def test_rows_limit_and_compression(tmp_path: Path) -> None:
    pq.write_table(table_of(25), tmp_path / "a.parquet")
    done = split_file(tmp_path / "a.parquet", tmp_path / "out", ChunkLimit(10**9, 10), "zst")
    assert [pq.read_metadata(p).num_rows for p in done.paths] == [10, 10, 5]
    assert pq.ParquetFile(done.paths[0]).metadata.row_group(0).column(0).compression == "ZSTD"


def test_a_row_larger_than_the_size_gets_its_own_chunk(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a", "x" * 5000, "b"]}), tmp_path / "a.parquet")
    done = split_file(tmp_path / "a.parquet", tmp_path / "out", ChunkLimit(1000))
    assert [pq.read_table(p)["text"].to_pylist() for p in done.paths] == [["a"], ["x" * 5000], ["b"]]
    assert done.n_oversize == 1


def test_rows_after_a_corrupt_page_are_named_and_the_rest_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"text": [f"row {i} " + "y" * 100 for i in range(300)]})
    pq.write_table(table, path, row_group_size=100, compression="none", use_dictionary=False, write_page_checksum=True)
    raw = bytearray(path.read_bytes())
    at = raw.index(b"row 150 ")
    raw[at : at + 8] = b"ROW 150!"
    path.write_bytes(raw)
    done = split_file(path, tmp_path / "out", ChunkLimit(10**9))
    kept = [row for p in done.paths for row in pq.read_table(p)["text"].to_pylist()]
    assert kept[:100] == table["text"].to_pylist()[:100]
    assert kept[-100:] == table["text"].to_pylist()[200:]
    assert len(done.faults) == 1
    assert "to 199 cannot be read" in done.faults[0]


def test_an_empty_table_and_a_wrong_codec(tmp_path: Path) -> None:
    pq.write_table(table_of(0), tmp_path / "a.parquet")
    assert split_file(tmp_path / "a.parquet", tmp_path / "out", ChunkLimit(100)).paths == []
    with pytest.raises(UsageError, match="Parquet files can use gz, zst, none"):
        split_file(tmp_path / "a.parquet", tmp_path / "out", ChunkLimit(100), "bz2")
