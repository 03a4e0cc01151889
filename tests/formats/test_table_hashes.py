"""Content hashes of rows: what they depend on and what not."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from tamis.formats.table_block import row_hashes

ROWS = [
    {"id": i, "text": None if i % 7 == 0 else f"text {i} é", "x": i / 3, "ok": i % 2 == 0, "tags": ["a", str(i)]}
    for i in range(300)
]


def keys(table: pa.Table) -> list[tuple[int, int]]:
    hi, lo = row_hashes(table)
    assert hi.dtype == lo.dtype == np.uint64
    return list(zip(hi.tolist(), lo.tolist(), strict=True))


def one(name: str, value: object, kind: pa.DataType | None = None) -> tuple[int, int]:
    return keys(pa.table({name: pa.array([value], kind)}))[0]


def test_independent_of_chunks_slices_and_column_order() -> None:
    table = pa.Table.from_pylist(ROWS)
    whole = keys(table)
    assert len(set(whole)) == 300
    assert keys(table.slice(37, 111)) == whole[37:148]
    assert (
        keys(pa.concat_tables([table.slice(0, 5), table.slice(5, 0), table.slice(5, 200), table.slice(205)])) == whole
    )
    assert keys(table.select(["tags", "x", "id", "ok", "text"])) == whole
    assert keys(pa.concat_tables([table.slice(i, 1) for i in range(300)])) == whole


def test_independent_of_the_width_of_a_type() -> None:
    for kind in (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint32(), pa.uint64()):
        assert one("a", 7, kind) == one("a", 7, pa.int64())
    assert one("a", 0.5, pa.float32()) == one("a", 0.5, pa.float64())
    for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        assert one("a", "é", kind) == one("a", "é", pa.string())
    assert one("a", b"xyz", pa.binary(3)) == one("a", b"xyz", pa.large_binary()) == one("a", b"xyz", pa.binary_view())


def test_sensitive_to_name_null_value_and_family() -> None:
    values = [
        *[1, 0, -1, 1.0, 0.0, -0.0, float("nan"), True, False, "1", "", "a", "a\0", b"a", b"", [1], [], {"a": 1}],
        *[dt.date(1970, 1, 2), dt.datetime(1970, 1, 2), dt.time(0, 0, 1), dt.timedelta(1), Decimal("1.0"), None],
    ]
    seen = [one(name, value) for name in ("a", "b") for value in values]
    assert len(set(seen)) == len(seen)
    assert one("a", 2**64 - 1, pa.uint64()) != one("a", -1, pa.int64())


def test_nulls_of_all_types_are_alike() -> None:
    kinds = [pa.null(), pa.int64(), pa.float64(), pa.bool_(), pa.string(), pa.list_(pa.int64()), pa.date32()]
    assert len({one("a", None, kind) for kind in kinds}) == 1


def test_values_under_nulls_and_kinds_of_nan_do_not_count() -> None:
    hidden = pa.Array.from_buffers(pa.int64(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(np.array([99, 5]).tobytes())])
    assert keys(pa.table({"a": hidden})) == keys(pa.table({"a": pa.array([None, 5])}))
    nans = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    assert len(set(keys(pa.table({"a": nans})))) == 1


def test_columns_do_not_stand_in_for_each_other() -> None:
    assert keys(pa.table({"a": ["x"], "b": ["y"]})) != keys(pa.table({"a": ["y"], "b": ["x"]}))
    assert keys(pa.table({"a": [1]})) != keys(pa.table({"a": [1], "b": pa.nulls(1)}))


@pytest.mark.parametrize("n_rows", [0, 1])
def test_small_tables(n_rows: int) -> None:
    table = pa.Table.from_pylist(ROWS).slice(3, n_rows)
    assert len(keys(table)) == n_rows
    assert keys(pa.table({"a": pa.chunked_array([], pa.int64())})) == []


LISTS = [
    None if i % 5 == 0 else [float(j) / 7 for j in range(i % 4)] + ([None] if i % 11 == 0 else []) for i in range(200)
]


@pytest.mark.parametrize("kind", [pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_(pa.int64())])
def test_lists_of_numbers_do_not_depend_on_neighbours(kind: pa.DataType) -> None:
    values = [
        None if v is None else [None if x is None else x if "float" in str(kind) else int(x * 7) for x in v]
        for v in LISTS
    ]
    table = pa.table({"e": pa.array(values, kind)})
    whole = keys(table)
    assert [keys(table.slice(i, 1))[0] for i in range(200)] == whole
    assert keys(table.slice(13, 100)) == whole[13:113]
    assert whole == [one("e", v, kind) for v in values]
    assert len(set(whole)) == len({str(v) for v in values})


def test_lists_of_numbers_do_not_depend_on_the_width_or_kind_of_list() -> None:
    wanted = one("e", [0.5, -2.0], pa.list_(pa.float64()))
    assert one("e", [0.5, -2.0], pa.list_(pa.float32())) == wanted
    assert one("e", [0.5, -2.0], pa.large_list(pa.float64())) == wanted
    assert one("e", [0.5, -2.0], pa.list_(pa.float32(), 2)) == wanted
    assert one("e", [0.5, -2.0, 0.0], pa.list_(pa.float64())) != wanted
    assert one("e", [float("nan")], pa.list_(pa.float64())) == one("e", [-float("nan")], pa.list_(pa.float64()))
    fixed = pa.table({"e": pa.array([[0.5, -2.0], None, [1.0, 2.0]], pa.list_(pa.float32(), 2))})
    assert keys(fixed.slice(1)) == keys(fixed)[1:]
