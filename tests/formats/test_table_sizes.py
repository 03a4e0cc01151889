"""Sizes of rows by their values, against plain Python."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis.formats.table_block import row_bytes


def size(value: Any) -> int:
    """Measure as `row_bytes` does: texts by their UTF-8 bytes, numbers of 64 bits, everything else by its parts."""
    if value is None:
        return 0
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, bool):
        return 1
    if isinstance(value, (int, float)):
        return 8
    return sum(map(size, value.values() if isinstance(value, dict) else value))


values = st.fixed_dictionaries(
    {
        "text": st.none() | st.text(max_size=5),
        "raw": st.none() | st.binary(max_size=5),
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "x": st.none() | st.floats(),
        "flag": st.none() | st.booleans(),
        "tags": st.none() | st.lists(st.none() | st.text(max_size=3), max_size=3),
        "deep": st.none() | st.lists(st.none() | st.lists(st.none() | st.integers(0, 9), max_size=2), max_size=2),
        "about": st.none()
        | st.fixed_dictionaries({"a": st.none() | st.text(max_size=2), "b": st.none() | st.integers(0, 9)}),
        "nothing": st.none(),
    }
)
SCHEMA = pa.schema(
    {
        "text": pa.string(),
        "raw": pa.large_binary(),
        "n": pa.int64(),
        "x": pa.float64(),
        "flag": pa.bool_(),
        "tags": pa.list_(pa.string()),
        "deep": pa.large_list(pa.list_(pa.int64())),
        "about": pa.struct({"a": pa.large_string(), "b": pa.int64()}),
        "nothing": pa.null(),
    }
)


@given(st.lists(values, max_size=12), st.integers(0, 12), st.integers(1, 5))
def test_rows_are_as_large_as_their_values(rows: list[dict[str, Any]], first: int, n_chunk: int) -> None:
    whole = pa.Table.from_pylist(rows, SCHEMA)
    chunks = [whole.slice(i, n_chunk) for i in range(0, len(rows), n_chunk)]
    table = pa.concat_tables(chunks).slice(first) if chunks else whole
    assert row_bytes(table).tolist() == [size(row) for row in rows[first:]]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array(["a", "bb", None, "a"]).dictionary_encode(), [1, 2, 0, 1]),
        (pa.array([None, None], pa.string()).dictionary_encode(), [0, 0]),
        (pa.array(["a", None, "éé"], pa.string_view()), [1, 0, 4]),
        (pc.run_end_encode(pa.array([1, 1, 2])), [8, 8, 8]),
        (pa.array([[1, 2], None, [3, None]], pa.list_(pa.int64(), 2)), [16, 0, 8]),
        (pa.array([[("k", 1)], None, [("kk", 2), ("z", None)]], pa.map_(pa.string(), pa.int64())), [9, 0, 11]),
        (pa.array([b"ab", None], pa.binary(2)), [2, 0]),
        (pa.array([date(2020, 1, 1), None]), [4, 0]),
        (pa.array([Decimal("1.5"), None]), [16, 0]),
        (pa.array([1, 2], pa.int8()), [1, 1]),
    ],
)
def test_other_types(array: pa.Array, expected: list[int]) -> None:
    assert row_bytes(pa.table({"c": array})).tolist() == expected
    assert row_bytes(pa.table({"c": array}).slice(1)).tolist() == expected[1:]


def test_columns_add_up_and_no_columns_are_nothing() -> None:
    assert row_bytes(pa.table({"a": ["x", "yy"], "b": [1, None]})).tolist() == [9, 2]
    assert row_bytes(pa.table({"a": [1, 2]}).select([])).tolist() == [0, 0]
