"""The one text of a value."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis.tasks.columns.canonical import canonical_text, json_text, number_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (-7, "-7"),
        (2**64 - 1, "18446744073709551615"),
        (1.0, "1"),
        (-3.0, "-3"),
        (0.0, "0"),
        (-0.0, "-0.0"),
        (9007199254740992.0, "9007199254740992"),
        (9007199254740994.0, "9007199254740994.0"),
        (1e22, "1e+22"),
        (0.1, "0.1"),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert number_text(value) == text


def test_values() -> None:
    assert canonical_text(True) == "true"
    assert canonical_text("as it is") == "as it is"
    assert canonical_text({"b": [1.0, None, "é\n"], "a": {"x": None}, "c": None}) == '{"a":{},"b":[1,null,"é\\n"]}'
    assert canonical_text(b"\xff\x00") == "/wA="
    assert json_text("x") == '"x"'
    assert json_text(None) == "null"


@given(st.integers(-(2**53), 2**53))
def test_an_integer_and_its_float_have_one_text(value: int) -> None:
    assert number_text(value) == number_text(float(value))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(JSON)
def test_nested_text_is_json_and_a_fixed_point(value: object) -> None:
    text = json_text(value)
    assert json_text(json.loads(text)) == text


def test_depth_is_no_limit() -> None:
    value: object = 1.0
    for _ in range(2000):
        value = {"a": [value, None]}
    assert json_text(value) == '{"a":[' * 2000 + "1" + ",null]}" * 2000
