"""Types over a run from facts: literal cases, and independence of order and cut."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis.errors import FormatError
from tamis.tasks.columns.casting import widen
from tamis.tasks.columns.inference import Observed, observe

TEXT = pa.large_string()
BIG = 2**63 + 5


def columns(*blocks: list[Any]) -> pa.DataType:
    seen = Observed()
    for block in blocks:
        seen = seen.join(observe(pa.array(block, pa.uint64() if BIG in block else None)))
    return seen.data_type()


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ([[None], []], pa.null()),
        ([[True], [None]], pa.bool_()),
        ([[1], [-5, None]], pa.int64()),
        ([[1], [BIG]], pa.uint64()),
        ([[1], [BIG], [-1]], TEXT),
        ([[1], [0.5]], pa.float64()),
        ([[2**53], [0.5]], pa.float64()),
        ([[2**53 + 1], [0.5]], TEXT),
        ([[-(2**53) - 1], [0.5]], TEXT),
        ([[BIG], [0.5]], TEXT),
        ([[True], [1]], TEXT),
        ([["a"], [1]], TEXT),
        ([[[1]], [[0.5], None]], pa.list_(pa.float64())),
        ([[[]], [[]]], pa.list_(pa.null())),
        ([[[1]], [["a"]]], pa.list_(TEXT)),
        ([[[1]], [1]], TEXT),
        ([[{"b": 1}], [{"a": "x", "b": 0.5}]], pa.struct({"a": TEXT, "b": pa.float64()})),
        ([[{"b": 1}], [[1]]], TEXT),
    ],
)
def test_type_of_a_run(blocks: list[list[Any]], expected: pa.DataType) -> None:
    assert columns(*blocks) == expected
    assert columns(*reversed(blocks)) == expected


VALUES = st.sampled_from(
    [
        *[[None], [True], [1, 2], [-1], [2**60], [BIG], [0.5], ["a"], [[1], None], [[0.5]], [["a"]], [[]], [{}]],
        *[[{"a": 1}], [{"a": 0.5, "b": [2**60]}], [{"b": [0.5]}], [{"b": "x"}]],
    ]
)


@given(st.lists(VALUES, max_size=6), st.randoms())
def test_order_and_grouping_do_not_matter_and_every_block_fits(blocks: list[list[Any]], rng: Any) -> None:
    arrays = [pa.array(block, pa.uint64() if BIG in block else None) for block in blocks]
    forward = Observed()
    for array in arrays:
        forward = forward.join(observe(array))
    shuffled = [observe(array) for array in arrays]
    rng.shuffle(shuffled)
    while len(shuffled) > 1:
        at = rng.randrange(len(shuffled) - 1)
        shuffled[at : at + 2] = [shuffled[at].join(shuffled[at + 1])]
    assert shuffled == [forward] or not arrays
    final = forward.data_type()
    for array in arrays:
        assert widen(array, final).type == final
    assert Observed.from_json(json.loads(json.dumps(forward.to_json()))) == forward


def test_very_deep_values_are_text() -> None:
    value: Any = 1
    for _ in range(50):
        value = [value]
    array = pa.array([value])
    kind = observe(array).data_type()
    assert str(kind).count("list<") == 30
    assert widen(array, kind).flatten().to_pylist() == widen(array.flatten(), kind.value_type).to_pylist()
    text = widen(array, TEXT).to_pylist()[0]
    assert text == "[" * 50 + "1" + "]" * 50
    assert Observed.from_json(observe(array).to_json()) == observe(array)


@pytest.mark.parametrize("plain", [None, 5, [], [1, 2], [-1], [True], [1 << 20], [0, None, []], [0, None, {"a": 1}]])
def test_stored_facts_are_not_trusted(plain: Any) -> None:
    with pytest.raises(FormatError, match="stored facts"):
        Observed.from_json(plain)


def test_types_that_json_does_not_have_are_refused() -> None:
    with pytest.raises(FormatError, match="date32"):
        observe(pa.array([1], pa.int32()).cast(pa.date32()))
