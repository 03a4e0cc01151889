"""Python values of JSON as Arrow arrays."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
import pytest

from tamis.tasks.columns.exact import stored
from tamis.tasks.columns.inference import column_type, facts_of, n_facts, observe, parse_json_column
from tamis.tasks.columns.json_type import Digits, deep_recursion, load
from tamis.tasks.columns.literals import literals_of_values


def array_of(values: list[Any]) -> pa.Array:
    """Return a column of JSON values as Parquet stores it."""
    return stored(literals_of_values(values))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([[1, 2], None, []], "list<item: int64>"),
        ([[1], [0.5]], "list<item: double>"),
        ([[0.5, True]], "large_string"),
        ([[2**63]], "list<item: uint64>"),
        ([[2**63, -1]], "large_string"),
        ([[2**64]], "large_string"),
        ([[2**53 + 1, 0.5]], "large_string"),
        ([{"b": 1}, {"a": ["x"]}], "struct<a: list<item: large_string>, b: int64>"),
        ([{"a": 1}, {"a": "x"}], "large_string"),
        ([{}], "struct<>"),
        ([{"a": None}], "struct<a: null>"),
        ([[], None], "list<item: null>"),
        ([1, "x"], "large_string"),
        ([True, 1], "large_string"),
        ([[1], {"a": 1}], "large_string"),
    ],
)
def test_the_type_of_a_column(values: list[Any], kind: str) -> None:
    array = array_of(values)
    assert str(array.type) == kind
    assert column_type(observe(array)) == array.type  # what an array says of itself leads to the same type


def test_values_that_do_not_agree_at_any_level_are_the_text_of_the_whole() -> None:
    assert array_of([{"a": [1]}, {"a": ["x"]}, None]).to_pylist() == ['{"a":[1]}', '{"a":["x"]}', None]


def test_lists_deeper_than_arrow_should_recurse_are_text() -> None:
    def deep(n: int) -> Any:
        value: Any = 1
        for _ in range(n):
            value = [value]
        return value

    assert pa.types.is_list(array_of([deep(30)]).type)
    assert array_of([deep(31)]).to_pylist() == ["[" * 31 + "1" + "]" * 31]


def test_load_keeps_digits_and_replaces_lone_surrogates() -> None:
    assert load(b'{"a\\udc00":["\\ud800x","\\ud83d\\ude00"]}') == {"a\ufffd": ["\ufffdx", "😀"]}
    assert load(b"[" + b"9" * 5000 + b",1]") == [Digits("9" * 5000), 1]
    with pytest.raises(ValueError, match=r"Expecting value|Illegal trailing comma"):
        load(b"[1,]")


def test_recursion_is_given_back() -> None:
    before = sys.getrecursionlimit()
    with deep_recursion():
        assert sys.getrecursionlimit() >= 4000
    assert sys.getrecursionlimit() == before


def test_facts_are_counted() -> None:
    assert n_facts(facts_of({"a": [1], "b": {"c": None}})) == 5
    assert n_facts(facts_of(None)) == 1


def test_text_stored_for_lack_of_fields_comes_back() -> None:
    kind = pa.struct([("a", pa.struct([("b", pa.int64())])), ("f", pa.float64())])
    made = parse_json_column(pa.array(['{"a":{},"f":1}', None, '{"f":NaN}'], pa.large_string()), kind)
    assert made.slice(0, 2).to_pylist() == [{"a": {"b": None}, "f": 1.0}, None]
    assert made.type == kind
