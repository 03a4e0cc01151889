"""Lists of floats by Arrow's parser and writer: what json gives, to the bit and to the byte, or nothing."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tamis.tasks.columns.inference import typed_array
from tamis.tasks.columns.literals import float_list_texts, float_texts, literals_of, parse_float_lists
from tests.support.limits import examples

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
LISTS = st.lists(st.one_of(st.none(), st.lists(FLOATS, max_size=6)), min_size=1, max_size=6)


def same(a: list[Any], b: list[Any]) -> bool:
    """Equal to the bit: -0.0 is not 0.0."""
    return json.dumps(a) == json.dumps(b)


@settings(max_examples=examples(200), deadline=None)
@given(LISTS, st.sampled_from([(",", ":"), (", ", ": ")]))
@example(
    [[1e-5, 1e16, 1e22, -0.0, 5e-324, 1.7976931348623157e308, 123456789.0, 0.0001, 9999999999999998.0]], (",", ":")
)
def test_lists_are_read_as_json_reads_them(lists: list[Any], separators: tuple[str, str]) -> None:
    texts = [None if v is None else json.dumps(v, separators=separators) for v in lists]
    made = parse_float_lists(pa.array(texts, pa.large_string()))
    if any(v == [] for v in lists) or all(v is None for v in lists):
        assert made is None
    else:
        assert made is not None
        assert same(made.to_pylist(), lists)
        slow = typed_array(lists)
        assert slow is not None
        assert made.type == slow.type


@settings(max_examples=examples(200), deadline=None)
@given(LISTS)
@example([[1e-5, 1e16, 1e22, -0.0, 5e-324, 123456789.0, 0.0001, math.nan, math.inf, -math.inf], None, []])
def test_lists_are_written_as_json_writes_them(lists: list[Any]) -> None:
    for kind in (pa.list_(pa.float64()), pa.large_list(pa.float64())):
        made = float_list_texts(pa.array(lists, kind))
        assert made is not None
        assert made.to_pylist() == [json.dumps(v, separators=(",", ":")) for v in lists]
    some = pa.array([[0.5, None, 2.0], None], pa.list_(pa.float32()))
    data, offsets = literals_of(some)
    assert (bytes(data), offsets.tolist()) == (b"[0.5,null,2.0]null", [0, 14, 18])


def test_parts_of_columns_and_lists_of_one_size_are_written_too() -> None:
    whole = pa.array([[9.5], [1.5, 2.5], [], [3.0]], pa.large_list(pa.float32()))
    assert float_list_texts(whole.slice(1, 2)).to_pylist() == ["[1.5,2.5]", "[]"]  # type: ignore[union-attr]
    fixed = pa.array([[1.0, 2.5], None], pa.list_(pa.float32(), 2))
    assert float_list_texts(fixed).to_pylist() == ["[1.0,2.5]", "null"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "text",
    ["[1, 2]", "[1.5, 2]", "[]", "[[1.5]]", '["1.5"]', "[null]", "[1.5, null]", "[NaN]", "[1e999]", "[true]", "[ ]"],
)
def test_whatever_else_is_left_to_others(text: str) -> None:
    assert parse_float_lists(pa.array([text, "[0.5]"], pa.large_string())) is None


def test_other_columns_are_left_to_others() -> None:
    for array in (pa.array([[1]]), pa.array([1.5]), pa.array([["a"]]), pa.array([], pa.list_(pa.float64()))):
        assert float_list_texts(array) is None
    assert float_texts(pa.array([None, 1.0])).to_pylist() == ["null", "1.0"]
