"""Columns to other types: widening never changes a value and does not depend on the path; declared schemas."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tamis.errors import FormatError
from tamis.formats.schema.run_schema import join
from tamis.tasks.columns.casting import cast_declared, cast_table, widen

TEXT = pa.large_string()


@pytest.mark.parametrize(
    ("source", "values", "target", "expected"),
    [
        (pa.null(), [None, None], pa.list_(pa.int64()), [None, None]),
        (pa.int64(), [1, None, -3], pa.float64(), [1.0, None, -3.0]),
        (pa.int8(), [1, None], pa.int64(), [1, None]),
        (pa.uint32(), [2**32 - 1], pa.int64(), [2**32 - 1]),
        (pa.float32(), [0.5, None], pa.float64(), [0.5, None]),
        (pa.int64(), [1, None, -(2**63)], TEXT, ["1", None, "-9223372036854775808"]),
        (pa.uint64(), [2**64 - 1], TEXT, ["18446744073709551615"]),
        (pa.float64(), [1.0, 0.1, None, float("nan"), 1e300], TEXT, ["1", "0.1", None, "NaN", "1e+300"]),
        (pa.bool_(), [True, None, False], TEXT, ["true", None, "false"]),
        (pa.string(), ["a", None, "é"], TEXT, ["a", None, "é"]),
        (pa.dictionary(pa.int8(), pa.string()), ["a", None, "a"], TEXT, ["a", None, "a"]),
        (pa.date32(), [dt.date(2020, 1, 31), None], TEXT, ["2020-01-31", None]),
        (pa.large_binary(), ["é".encode(), None], TEXT, ["é", None]),
        (pa.list_(pa.int64()), [[1, None], None, []], pa.list_(pa.float64()), [[1.0, None], None, []]),
        (pa.list_(pa.int64()), [[1, None], None, []], pa.list_(TEXT), [["1", None], None, []]),
        (pa.list_(pa.int64()), [[1, None], None, []], TEXT, ["[1,null]", None, "[]"]),
        (pa.large_list(pa.int64()), [[1], None], pa.list_(pa.int64()), [[1], None]),
        (pa.list_(pa.int8(), 2), [[1, 2], None], pa.list_(pa.int64(), 2), [[1, 2], None]),
        (pa.list_(pa.int8(), 2), [[1, 2], None], pa.list_(pa.int64()), [[1, 2], None]),
        (
            pa.struct({"a": pa.int64()}),
            [{"a": 1}, None, {"a": None}],
            pa.struct({"a": pa.float64(), "b": pa.bool_()}),
            [{"a": 1.0, "b": None}, None, {"a": None, "b": None}],
        ),
        (pa.struct({"z": pa.float64(), "a": TEXT}), [{"z": 2.0, "a": None}, None], TEXT, ['{"z":2}', None]),
        (pa.struct([]), [{}, None], TEXT, ["{}", None]),
        (pa.struct([]), [{}, None], pa.struct({"a": pa.int64()}), [{"a": None}, None]),
        (pa.map_(pa.string(), pa.int64()), [[("k", 1)], None], TEXT, ['[["k",1]]', None]),
    ],
)
def test_widen(source: pa.DataType, values: list[Any], target: pa.DataType, expected: list[Any]) -> None:
    array = pa.array(values, source)
    got = widen(array, target)
    got.validate(full=True)
    assert got.type == target
    assert got.to_pylist() == expected
    padded = pa.concat_arrays([array, array, array]).slice(len(values), len(values))
    assert widen(padded, target).to_pylist() == expected
    assert widen(array.slice(0, 0), target).to_pylist() == []


@pytest.mark.parametrize(
    ("source", "values", "target"),
    [
        (pa.float64(), [1.0], pa.int64()),
        (pa.int64(), [2**53 + 1], pa.float64()),
        (pa.int64(), [-1], pa.uint64()),
        (pa.string(), ["1"], pa.int64()),
        (pa.bool_(), [True], pa.int64()),
        (pa.large_binary(), [b"\xff"], TEXT),
        (pa.struct({"a": pa.int64()}), [{"a": 1}], pa.struct({"b": pa.int64()})),
        (pa.list_(pa.int64()), [[1]], pa.list_(pa.int64(), 1)),
        (pa.int64(), [1], pa.list_(pa.int64())),
    ],
)
def test_what_is_no_widening_is_refused(source: pa.DataType, values: list[Any], target: pa.DataType) -> None:
    table = pa.table({"ok": [0], "a": pa.array(values, source)})
    with pytest.raises(FormatError, match="column 'a': cannot widen"):
        cast_table(table, pa.schema({"ok": pa.int64(), "a": target}))


def test_cast_table_orders_fills_and_keeps_chunks() -> None:
    table = pa.concat_tables([pa.table({"b": [1], "a": ["x"]}), pa.table({"b": [2], "a": ["y"]})])
    schema = pa.schema({"a": TEXT, "new": pa.list_(pa.int64()), "b": pa.float64()})
    got = cast_table(table, schema)
    assert got.schema == schema
    assert got.to_pylist() == [{"a": "x", "new": None, "b": 1.0}, {"a": "y", "new": None, "b": 2.0}]
    assert cast_table(table.slice(0, 0), schema).num_rows == 0
    with pytest.raises(FormatError, match="column 'b' is not in the schema"):
        cast_table(table, pa.schema({"a": TEXT}))


SMALL = st.integers(-(2**53), 2**53)
FLOATS = st.floats()
COLUMNS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.null(), st.none()),
    (pa.bool_(), st.booleans()),
    (pa.int64(), SMALL),
    (pa.float64(), FLOATS),
    (TEXT, st.text()),
    (pa.list_(pa.int64()), st.lists(SMALL | st.none(), max_size=3)),
    (pa.list_(pa.float64()), st.lists(FLOATS, max_size=3)),
    (pa.struct({"a": pa.int64()}), st.fixed_dictionaries({"a": SMALL | st.none()})),
    (pa.struct({"b": pa.list_(pa.int64())}), st.fixed_dictionaries({"b": st.lists(SMALL, max_size=2)})),
]
OTHERS = [
    *[kind for kind, _ in COLUMNS],
    pa.struct({"a": pa.float64(), "c": pa.bool_()}),
    pa.struct({"b": pa.list_(pa.float64())}),
    pa.list_(pa.null()),
]


def hides_leaves(kind: pa.DataType) -> bool:
    """Return True for nested types with text inside: [1] became ["1"], like a value that was ["1"] before."""
    return bool(pa.types.is_nested(kind)) and "large_string" in str(kind)


@given(st.data(), st.sampled_from(COLUMNS), st.sampled_from(OTHERS), st.sampled_from(OTHERS))
def test_the_path_does_not_matter(
    data: st.DataObject, column: tuple[pa.DataType, st.SearchStrategy[Any]], second: pa.DataType, third: pa.DataType
) -> None:
    kind, values = column
    array = pa.array(data.draw(st.lists(values | st.none(), max_size=5)), kind)
    middle = join(kind, second)
    last = join(middle, third)
    assume(not hides_leaves(middle))
    direct, stepwise = widen(array, last), widen(widen(array, middle), last)
    assert str(direct.to_pylist()) == str(stepwise.to_pylist())  # as text: NaN equals itself there
    assert direct.type == stepwise.type == last


def test_declared_converts_what_fits_and_names_what_does_not() -> None:
    table = pa.table({"n": pa.array(["1", "x", "01", None, "-5"]), "text": pa.array([1, 2, 3, None, 5])})
    got, bad_rows, reasons = cast_declared(table, pa.schema({"text": TEXT, "n": pa.int64(), "new": pa.bool_()}))
    assert got.to_pylist() == [
        {"text": "1", "n": 1, "new": None},
        {"text": None, "n": None, "new": None},
        {"text": "5", "n": -5, "new": None},
    ]
    assert bad_rows.tolist() == [1, 2]
    assert reasons[0].startswith("field 'n': expected int64, got 'x'")
    assert reasons[1] == "field 'n': expected int64, got '01' (the text of that number is another one)"


@pytest.mark.parametrize(
    ("values", "target", "expected", "bad"),
    [
        ([1.0, 1.5, None, 1e300], pa.int64(), [1, None], [1, 3]),
        ([1, 2**53 + 1], pa.float64(), [1.0], [1]),
        ([1, 300, -1], pa.uint8(), [1], [1, 2]),
        ([0.5, 0.1], pa.float32(), [0.5], [1]),
        ([True, False], pa.int64(), [], [0, 1]),
        (["true", "no", None], pa.bool_(), [True, None], [1]),
        (["2020-01-31", "soon"], pa.date32(), [dt.date(2020, 1, 31)], [1]),
        (["0.1", "1e5", "1", "nan"], pa.float64(), [0.1, 1.0], [1, 3]),
        ([[1.0, 2.0], [1.5], None], pa.list_(pa.int64()), [[1, 2], None], [1]),
        ([{"a": 1.0}, {"a": 0.5}], pa.struct({"a": pa.int64(), "b": TEXT}), [{"a": 1, "b": None}], [1]),
        ([{"a": 1, "x": 2}, {"a": 1, "x": None}], pa.struct({"a": pa.int64()}), [{"a": 1}], [0]),
        ([{"a": 1}], TEXT, ['{"a":1}'], []),
        ([[1]], pa.int64(), [], [0]),
    ],
)
def test_declared_values(values: list[Any], target: pa.DataType, expected: list[Any], bad: list[int]) -> None:
    got, bad_rows, reasons = cast_declared(pa.table({"a": values}), pa.schema({"a": target}))
    assert got.column("a").to_pylist() == expected
    assert got.schema == pa.schema({"a": target})
    assert bad_rows.tolist() == bad
    assert len(reasons) == len(bad)


def test_declared_names_undeclared_fields_and_forbidden_nulls() -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    table = pa.table({"a": [1, None, 3], "extra": [None, None, "x"]})
    got, bad_rows, reasons = cast_declared(table, schema)
    assert got.to_pylist() == [{"a": 1}]
    assert got.schema == schema
    assert bad_rows.tolist() == [1, 2]
    assert reasons == [
        "field 'a' is null or missing; the declared schema forbids it",
        "field 'extra' is not in the declared schema",
    ]
