"""Columns that hold every value exactly: Python values in, the same values out, whatever stands beside them."""

from __future__ import annotations

import datetime
import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.tasks import NULL, OTHER, TEXT
from tamis.tasks.columns.exact import (
    cast_back,
    exact_array,
    is_same,
    kinds_of,
    replace_where,
    same_values,
    texts_of_column,
    to_computable,
    values_of,
)
from tamis.tasks.columns.json_type import JSON, json_column
from tamis.tasks.columns.literals import as_json, literals_of, literals_of_values

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**400]),
    st.floats(),
    st.text(st.characters(codec="utf-8"), max_size=6),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["b", "a", "é"]), inner, max_size=3)
    ),
    max_leaves=6,
)


def spelled(items: list[Any]) -> list[str]:
    return [json.dumps(v) for v in items]  # tells 1 from 1.0 and true, the order of members, and NaN from others


@settings(max_examples=100, deadline=None)
@given(st.lists(values, max_size=6), st.lists(values, max_size=3))
def test_values_and_their_json_do_not_depend_on_their_neighbours(some: list[Any], others: list[Any]) -> None:
    array, beside = exact_array(some), exact_array([*some, *others]).slice(0, len(some))
    assert spelled(values_of(array)) == spelled(values_of(beside)) == spelled(some)
    texts = [literals_of(a)[0][literals_of(a)[1][0] :].tobytes() for a in (array, as_json(array), exact_array(some))]
    assert texts[0] == texts[1] == texts[2]
    one_by_one = b"".join(literals_of(exact_array([v]))[0].tobytes() for v in some)
    assert one_by_one == texts[0]
    assert same_values(array, beside).all()
    kinds = [NULL if v is None else TEXT if isinstance(v, str) else OTHER for v in some]
    assert kinds_of(array).tolist() == kinds_of(beside).tolist() == kinds
    assert texts_of_column(beside).to_pylist() == [v if isinstance(v, str) else None for v in some]


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (["a", None], "large_string"),
        ([1, None], "int64"),
        ([1, 2**63], "uint64"),
        ([-1, 2**63], str(JSON)),
        ([1, 1.0], str(JSON)),
        ([1.0, None], "double"),
        ([True, None], "bool"),
        ([True, 1], str(JSON)),
        ([[1.0], []], "list<item: double>"),
        ([[1.0], [1]], str(JSON)),
        ([{"a": 1}], str(JSON)),
        ([datetime.date(2020, 1, 2), None], "date32[day]"),
        ([datetime.date(2020, 1, 2), 1], str(JSON)),
        ([np.int64(1), np.float64(0.5)], str(JSON)),
        ([None], "null"),
    ],
)
def test_a_type_that_holds_them_all_or_json(given: list[Any], kind: str) -> None:
    assert str(exact_array(given).type) == kind


def test_the_form_that_users_compute_with() -> None:
    assert to_computable(exact_array([1, 2.5])).equals(pa.array([1.0, 2.5]))
    assert to_computable(exact_array([{"a": 1}, {"b": None}])).to_pylist() == [
        {"a": 1, "b": None},
        {"a": None, "b": None},
    ]
    assert to_computable(exact_array([1, "a"])).to_pylist() == [1, "a"]


def test_what_json_has_no_word_for() -> None:
    days = [datetime.date(2020, 1, 2), datetime.datetime(2020, 1, 2, 3), b"\xff", {1: (2, {3})}, np.arange(2)]
    made = literals_of_values(days).storage.to_pylist()
    assert made == ['"2020-01-02"', '"2020-01-02T03:00:00"', '"/w=="', '{"1":[2,"{3}"]}', "[0,1]"]


def test_replacing_some_values_keeps_the_others() -> None:
    mask = np.array([False, True, False])
    for before, new, after in (
        (["a", "b", "c"], ["x"], ["a", "x", "c"]),
        ([1, 2, 3], ["x"], [1, "x", 3]),
        ([1, 2, 3], [2.0], [1, 2.0, 3]),
        ([1, "a", {"b": 1}], [None], [1, None, {"b": 1}]),
        ([None, None, None], [[1]], [None, [1], None]),
        ([[1], [2], None], [[3]], [[1], [3], None]),
    ):
        assert spelled(values_of(replace_where(exact_array(before), mask, exact_array(new)))) == spelled(after)
    views = pa.array(["a", "b", "c"], pa.string_view())
    assert replace_where(views, mask, pa.array(["x"])).to_pylist() == ["a", "x", "c"]


def test_what_counts_as_the_same() -> None:
    assert is_same({"a": [1, None]}, {"a": [1.0, None]})
    assert is_same(math.nan, math.nan)
    for a, b in (
        (1, True),
        (1, "1"),
        (None, False),
        ([1], (2,)),
        ({"a": 1}, {"a": 1, "b": None}),
        (2**53 + 1, 2.0**53),
    ):
        assert not is_same(a, b)
        assert not is_same(b, a)
    assert is_same(2**53 + 1, 2.0**53, loose=True)
    assert not is_same(10**400, 1e300, loose=True)
    assert is_same([{"a": 1}], [{"a": 1, "b": None}], loose=True)


def test_a_type_is_kept_where_it_holds_the_values() -> None:
    assert cast_back(pa.array([1]), pa.int16()).type == pa.int16()
    assert cast_back(pa.array([70000]), pa.int16()).type == pa.int64()
    assert cast_back(pa.array([1]), pa.string()).type == pa.int64()
    assert cast_back(exact_array([{"a": 1}]), pa.struct([("a", pa.int8())])).type == pa.struct([("a", pa.int8())])
    assert cast_back(exact_array([{"b": 1}]), pa.struct([("a", pa.int8())])).type == JSON


def test_json_values_survive_arrow_files() -> None:
    column = json_column(pa.array(['{"a": 1}', None, '"x"'], pa.large_string()))
    table = pa.table({"x": column})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    back = pa.ipc.open_stream(sink.getvalue()).read_all()
    assert back.schema.field("x").type == JSON
    assert back.to_pylist() == [{"x": {"a": 1}}, {"x": None}, {"x": "x"}]
    assert back.filter(pa.array([False, False, True]))["x"].to_pylist() == ["x"]
