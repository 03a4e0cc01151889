"""Parquet: ranges of rows, batches bounded in bytes, normalised types, faults, writing."""

from __future__ import annotations

import json
import pickle
import random
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.errors import FormatError
from tamis.formats.base import RowsFault, TableInfo
from tamis.formats.parquet import footer as parquet_footer
from tamis.formats.parquet import format as parquet
from tamis.formats.parquet import pages
from tamis.formats.parquet.format import TableWriter, describe, iter_rows


def rows(first: int, end: int) -> list[dict[str, object]]:
    return [{"id": i, "text": None if i % 10 == 3 else f"row {i} " + "é" * (i % 40)} for i in range(first, end)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    target = tmp_path / "x.parquet"
    pq.write_table(pa.Table.from_pylist(rows(0, 10_000)), target, row_group_size=3000)
    return target


def read(path: Path, first: int, end: int, **options: object) -> list[dict[str, object]]:
    out: list[dict[str, object]] = []
    for at, table in iter_rows(path, first, end, **options):  # type: ignore[arg-type]
        assert at == first + len(out)
        assert table.num_rows > 0
        out.extend(table.to_pylist())
    return out


def test_describe(path: Path) -> None:
    info = describe(path)
    assert info.n_rows == 10_000
    assert [(g.first_row, g.n_rows) for g in info.row_groups] == [(0, 3000), (3000, 3000), (6000, 3000), (9000, 1000)]
    assert all(g.estimated_bytes > 1000 for g in info.row_groups)
    assert info.columns == [("id", "int64"), ("text", "string")]
    assert info.file_bytes == path.stat().st_size
    assert TableInfo.from_dict(json.loads(json.dumps(info.to_dict()))) == info


@pytest.mark.parametrize("damage", ["empty", "text", "truncated", "no footer", "footer"])
def test_a_file_that_is_no_parquet_is_a_format_error(path: Path, damage: str) -> None:
    data = path.read_bytes()
    footer_bytes = int.from_bytes(data[-8:-4], "little")
    damaged = {
        "empty": b"",
        "text": b'{"text": "plain"}\n',
        "truncated": data[: len(data) // 2],
        "no footer": data[:-8],
        "footer": data[: -8 - footer_bytes] + b"\xff" * footer_bytes + data[-8:],
    }[damage]
    path.write_bytes(damaged)
    with pytest.raises(FormatError, match="not a readable Parquet file"):
        describe(path)


def test_a_missing_file_is_no_format_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        describe(tmp_path / "none.parquet")


def test_a_file_that_vanishes_while_it_is_read_is_no_fault_of_the_data(path: Path) -> None:
    tables = iter_rows(path, 0, 10_000)
    assert next(tables)[0] == 0
    path.unlink()
    with pytest.raises(FileNotFoundError):
        list(tables)


def test_a_column_name_that_appears_twice_is_refused(tmp_path: Path) -> None:
    table = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(FormatError, match="column 'a' appears more than once"):
        describe(tmp_path / "x.parquet")


@pytest.mark.parametrize(
    ("first", "end"),
    [(0, 10_000), (0, 1), (2999, 3001), (3000, 6000), (1234, 1234), (9999, 10_000), (4321, 9876), (0, 10**9)],
)
def test_exactly_the_requested_rows(path: Path, first: int, end: int) -> None:
    assert read(path, first, end) == rows(first, min(end, 10_000))


def test_only_the_requested_columns_in_that_order(path: Path) -> None:
    (_, table), *_ = iter_rows(path, 0, 10, columns=["text", "id"])
    assert table.column_names == ["text", "id"]
    assert read(path, 5, 7, columns=["id", "none"]) == [{"id": 5}, {"id": 6}]
    assert sum(table.num_rows for _, table in iter_rows(path, 100, 9000, columns=[])) == 8900


def test_a_dot_in_a_name_is_no_path(tmp_path: Path) -> None:
    table = pa.table({"a.b": [1, 2], "a": [{"b": 3, "c": 4}, None]})
    pq.write_table(table, tmp_path / "x.parquet")
    assert read(tmp_path / "x.parquet", 0, 2, columns=["a"]) == [{"a": {"b": 3, "c": 4}}, {"a": None}]
    assert read(tmp_path / "x.parquet", 0, 2, columns=["a.b"]) == [{"a.b": 1}, {"a.b": 2}]


def test_batches_stay_below_their_bytes_and_grow_to_them(tmp_path: Path) -> None:
    rng = random.Random(1)
    sizes = [10] * 20_000 + [20_000] * 200 + [10] * 5000
    table = pa.table({"text": [rng.randbytes(n // 2).hex() for n in sizes]})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=100_000)
    tables = [t for _, t in iter_rows(tmp_path / "x.parquet", 0, 10**9, batch_bytes=400_000)]
    assert pa.concat_tables(tables).column("text").to_pylist() == table.column("text").to_pylist()
    assert max(t.nbytes for t in tables) <= 400_000
    assert tables[0].num_rows == 32
    assert max(t.num_rows for t in tables) > 5000
    assert len(tables) < 200


def test_a_repeated_value_that_decodes_to_much_more_than_its_file_is_cut(tmp_path: Path) -> None:
    table = pa.table({"text": ["x" * 100_000] * 2000})
    pq.write_table(table, tmp_path / "x.parquet")
    assert (tmp_path / "x.parquet").stat().st_size < 200_000
    n_rows = 0
    for _, part in iter_rows(tmp_path / "x.parquet", 0, 2000, batch_bytes=4_000_000):
        assert part.nbytes <= 4_000_000
        n_rows += part.num_rows
    assert n_rows == 2000


def test_types_are_plain(tmp_path: Path) -> None:
    table = pa.table(
        {
            "dict": pa.array(["a", "b", None, "a"]).dictionary_encode(),
            "string": pa.array(["a", "b", None, "a"]),
            "view": pa.array(["a", "b", None, "a"], pa.string_view()),
            "bytes": pa.array([b"a", b"\xff", None, b""]),
            "int": pa.array([1, 2, None, 4], pa.int16()),
            "list": pa.array([["a"], [], None, ["b"]]),
        }
    )
    pq.write_table(table, tmp_path / "x.parquet")
    ((_, got),) = iter_rows(tmp_path / "x.parquet", 0, 4)
    assert [str(field.type) for field in got.schema][:5] == ["large_string"] * 3 + ["large_binary", "int16"]
    assert pa.types.is_list(got.schema.field("list").type)
    assert got.to_pylist() == table.to_pylist()
    assert got.schema.metadata is None


def damaged_page(path: Path, group: int, share: float) -> None:
    column = pq.ParquetFile(path).metadata.row_group(group).column(1)
    at = column.data_page_offset + int(column.total_compressed_size * share)
    data = bytearray(path.read_bytes())
    data[at : at + 64] = b"\xff" * 64
    path.write_bytes(data)


@pytest.mark.parametrize("with_checksum", [True, False])
def test_rows_before_a_corrupt_page_are_delivered_and_the_fault_names_the_row(
    tmp_path: Path, with_checksum: bool
) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(
        pa.Table.from_pylist(rows(0, 30_000)),
        path,
        row_group_size=10_000,
        compression="zstd",
        use_dictionary=False,
        data_page_size=20_000,
        write_batch_size=100,
        write_page_checksum=with_checksum,
    )
    damaged_page(path, 1, 0.5)
    got: list[dict[str, object]] = []

    def drain(first: int) -> None:
        for at, table in iter_rows(path, first, 30_000):
            assert at == first + len(got)
            got.extend(table.to_pylist())

    with pytest.raises(RowsFault) as caught:
        drain(0)
    fault = caught.value
    assert got == rows(0, fault.row)
    assert 12_000 < fault.row < 18_000
    assert fault.next_row == 20_000
    assert fault.reason
    # The fault is found again from any start, also one beyond it, and the next row group can be read.
    for start in (fault.row - 3, fault.row, fault.row + 10):
        got.clear()
        with pytest.raises(RowsFault) as again:
            drain(start)
        assert again.value.row == max(fault.row, start)
        assert got == rows(start, fault.row)
    assert read(path, fault.next_row, 30_000) == rows(20_000, 30_000)


def test_a_corrupt_first_page_is_a_fault_at_the_beginning_of_its_group(path: Path) -> None:
    damaged_page(path, 2, 0.0)
    assert read(path, 0, 6000) == rows(0, 6000)
    with pytest.raises(RowsFault, match="decoding stopped at row 6000") as caught:
        read(path, 6000, 7000)
    assert pickle.loads(pickle.dumps(caught.value)).next_row == 9000


def test_a_failed_allocation_is_no_fault_of_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def starved(table: pa.Table) -> pa.Table:
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    monkeypatch.setattr(parquet, "plain_types", starved)
    with pytest.raises(MemoryError):
        read(path, 0, 10)
    monkeypatch.setattr(parquet, "open_file", lambda *a, **k: starved(None))
    with pytest.raises(MemoryError):
        describe(path)


def test_writer_casts_fills_and_cuts_row_groups_by_bytes(tmp_path: Path) -> None:
    schema = pa.schema({"id": pa.float64(), "text": pa.large_string(), "new": pa.int64()})
    path = tmp_path / "out.parquet"
    with TableWriter(path, schema, row_group_bytes=100_000) as writer:
        for start in range(0, 10_000, 500):
            writer.write(pa.Table.from_pylist(rows(start, start + 500)))
        writer.write(pa.Table.from_pylist(rows(10_000, 30_000)))
    n_rows, n_bytes = writer.close()
    assert (n_rows, n_bytes) == (30_000, path.stat().st_size)
    got = pq.read_table(path)
    assert got.schema.equals(schema)
    assert got.select(["id", "text"]).to_pylist() == rows(0, 30_000)
    assert got.column("new").null_count == 30_000
    groups = describe(path).row_groups
    assert 10 < len(groups) < 60
    metadata = pq.ParquetFile(path).metadata
    assert metadata.row_group(0).column(1).compression == "ZSTD"


def test_written_bytes_are_deterministic(tmp_path: Path) -> None:
    schema = pa.schema({"id": pa.int64(), "text": pa.large_string()})
    for name in ("one", "two"):
        with TableWriter(tmp_path / name, schema) as writer:
            writer.write(pa.Table.from_pylist(rows(0, 3000)))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_an_empty_file_has_a_schema_and_an_aborted_one_is_none(tmp_path: Path) -> None:
    schema = pa.schema({"id": pa.int64()})
    assert TableWriter(tmp_path / "empty", schema).close()[0] == 0
    assert describe(tmp_path / "empty").columns == [("id", "int64")]
    assert list(iter_rows(tmp_path / "empty", 0, 10)) == []
    writer = TableWriter(tmp_path / "aborted", schema)
    writer.write(pa.table({"id": [1]}))
    writer.abort()
    with pytest.raises(FormatError):
        describe(tmp_path / "aborted")


def test_writer_refuses_a_column_it_does_not_know(tmp_path: Path) -> None:
    with TableWriter(tmp_path / "x", pa.schema({"id": pa.int64()})) as writer:
        with pytest.raises(FormatError, match="column 'other' is not in the schema"):
            writer.write(pa.table({"id": [1], "other": [2]}))
        writer.write(pa.table({"id": [1]}))


def test_a_column_that_was_a_dictionary_is_read_value_by_value(tmp_path: Path) -> None:
    """Its dictionary is not part of every batch: batches are as small as their rows, whatever the dictionary."""
    texts = [f"{i} " * 500 for i in range(2000)]
    kinds = pa.DictionaryArray.from_arrays(pa.array(list(range(2000)) * 2, pa.int32()), pa.array(texts))
    more = pa.array(["a", "b"] * 2000).dictionary_encode()
    when = pa.array([1] * 4000, pa.timestamp("us", "Europe/Berlin"))
    table = pa.table({"text": kinds, "more": more, "when": when, "took": pa.array([5] * 4000, pa.duration("s"))})
    path = tmp_path / "x.parquet"
    pq.write_table(table.replace_schema_metadata({"x" * 300: "y" * 70_000}), path, dictionary_pagesize_limit=1 << 30)
    found = list(iter_rows(path, 0, 4000, batch_bytes=1 << 16))
    assert max(t.nbytes for _, t in found) <= 1 << 16
    assert [v for _, t in found for v in t["text"].to_pylist()] == texts * 2
    assert found[0][1].schema.types == [pa.large_string(), pa.large_string(), when.type, pa.duration("s")]
    assert parquet_footer.plain_metadata(path, pa.schema({"a": pa.int64()})) is None
    assert parquet_footer.replaced(b"no such entry") is None
    for odd in (b"\x18\x0cARROW:schema\x18\xff\xff\xff\xff\xff\xff", b"\x18\x0cARROW:schema\x18\x02??"):
        with pytest.raises((ValueError, pa.ArrowException)):
            parquet_footer.replaced(odd)


def test_rows_of_many_columns_come_in_batches_worth_their_while(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({f"c{i}": list(range(300)) for i in range(500)}), path)
    found = list(iter_rows(path, 0, 300, batch_bytes=1 << 10))
    assert len(found) <= 4
    assert sum(t.num_rows for _, t in found) == 300


def test_fewer_rows_at_once_where_they_did_not_fit(path: Path) -> None:
    assert {t.num_rows for _, t in iter_rows(path, 0, 100, max_rows=2)} == {2}


PAGED = pa.table(
    {
        "text": [f"text {i} " * (i % 9) for i in range(300)],
        "kind": pa.array(["a", "b", None] * 100).dictionary_encode(),
        "list": [[i, i + 1] for i in range(300)],
        "row": [{"x": 0.5, "y": [str(i)]} for i in range(300)],
    }
)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "zstd", "snappy"])
def test_pages_that_claim_more_than_their_column_has(tmp_path: Path, version: str, compression: str) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(
        PAGED,
        path,
        compression=compression,
        data_page_version=version,
        row_group_size=100,
        data_page_size=200,
        write_page_checksum=True,
    )
    metadata = pq.read_metadata(path)
    assert [pages.damaged_page(path, metadata, group, PAGED.column_names) for group in range(3)] == [None] * 3

    data, start = path.read_bytes(), metadata.row_group(1).column(0).data_page_offset
    size_at = data.index(b"\x15", start + 1) + 1  # the second field, a whole number: bytes when decoded
    path.write_bytes(data[:size_at] + b"\xfe\xff\xff\xff\x0f" + data[size_at + 5 :])
    assert pages.damaged_page(path, metadata, 0, PAGED.column_names) is None
    assert pages.damaged_page(path, metadata, 1, ["kind"]) is None
    told = pages.damaged_page(path, metadata, 1, PAGED.column_names)
    assert told is not None
    assert re.match(rf"column 'text' of row group 1: the page at byte {start} claims 2147483647 bytes of \d+", told)
