"""Rows with invalid UTF-8 are named."""

from __future__ import annotations

import pyarrow as pa

from tamis.formats.table_files import bad_text_rows


def text(*values: bytes | None) -> pa.Array:
    raw = pa.array(values, pa.large_binary())
    return pa.Array.from_buffers(pa.large_string(), len(raw), raw.buffers(), raw.null_count)


def test_bad_rows_are_named_across_chunks_and_slices() -> None:
    column = pa.chunked_array([text(b"a", b"\xff", None, "é".encode()), text(b"ok"), text(b"\xed\xa0\x80", b"b")])
    table = pa.table({"id": range(7), "text": column})
    rows, reasons = bad_text_rows(table)
    assert rows.tolist() == [1, 5]
    assert reasons == ["field 'text' is not valid UTF-8"] * 2
    assert bad_text_rows(table.slice(2, 4))[0].tolist() == [3]
    assert bad_text_rows(table.slice(2, 3))[0].tolist() == []


def test_nested_text_counts() -> None:
    lists = pa.LargeListArray.from_arrays([0, 2, 2, 3], text(b"a", b"b", b"\xc3"))
    structs = pa.StructArray.from_arrays([text(b"x", b"\x80", b"y")], names=["s"])
    assert bad_text_rows(pa.table({"l": lists}))[0].tolist() == [2]
    assert bad_text_rows(pa.table({"l": lists, "s": structs}))[0].tolist() == [1, 2]


def test_other_columns_are_left_alone() -> None:
    table = pa.table({"n": [1, 2], "b": pa.array([b"\xff", b""], pa.large_binary())})
    assert bad_text_rows(table)[0].tolist() == []
