"""Counting numbers into bins, against the slow twin."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.engine.histograms import NO_NUMBER, OVERFLOW, Histogram, edges
from tamis.engine.worker.binning import as_numbers, count, lengths
from tamis.formats.jsonl.block import JsonlBlock
from tamis.formats.table_block import TableBlock
from tamis.tasks import DocumentBatch
from tests.reference.histogram_twin import bin_of, histogram

anything = st.one_of(
    st.floats(),
    st.floats(0, 1),
    st.floats(-100, 100),
    st.integers(),
    st.booleans(),
    st.none(),
    st.text(max_size=3),
    st.integers(0, 50).map(lambda k: 2.0**k),
    st.integers(-30, 45).map(lambda k: math.nextafter(2.0**k, 0.0)),
)


def counted(values: Any) -> dict[int, int]:
    made = Histogram()
    count(values, made)
    return made.counts


@given(st.lists(anything, max_size=60))
def test_lists_of_anything_are_counted_as_the_twin_does(values: list[Any]) -> None:
    assert counted(values) == histogram(values)


@settings(deadline=None)  # the first look at an Arrow array may import pandas
@given(st.lists(st.floats(width=32), max_size=60))
def test_arrays_of_small_floats_too(values: list[float]) -> None:
    assert counted(np.array(values, np.float32)) == histogram(values)
    assert counted(pa.array([*values, None], pa.float32(), from_pandas=False)) == histogram([*values, None])


@given(st.lists(st.integers(0, 2**53), max_size=60), st.integers(0, 5), st.integers(1, 3))
def test_sliced_and_strided_arrays_of_whole_numbers(values: list[int], first: int, step: int) -> None:
    assert counted(np.array(values, np.int64)[first::step]) == histogram(values[first::step])
    assert counted(pa.array(values, pa.int64()).slice(min(first, len(values)))) == histogram(values[first:])


def test_every_bin_begins_where_its_ends_say() -> None:
    for index in range(OVERFLOW + 1):
        low, high = edges(index)
        assert low is not None
        assert bin_of(low) == index
        assert counted([low, -low] if low else [low]) == ({index: 1, -1 - index: 1} if low else {0: 1})
        if high is not None:
            below = math.nextafter(high, 0.0)
            assert counted([below, -below]) == {index: 1, -1 - index: 1}


def test_what_is_no_number_has_a_bin_of_its_own() -> None:
    assert counted([None, "12", float("nan"), -float("nan"), [1], np.complex64(1)]) == {NO_NUMBER: 6}
    assert counted(np.array(["a", "b"])) == {NO_NUMBER: 2}
    assert counted(np.zeros((2, 3))) == {NO_NUMBER: 2}
    assert counted(pa.chunked_array([["a"], ["b"]])) == {NO_NUMBER: 2}
    assert counted(np.array([None, 0.5], object)) == {NO_NUMBER: 1, 109: 1}


def test_numbers_beyond_all_floats_are_the_largest() -> None:
    assert counted([10**400, float("inf")]) == {OVERFLOW: 2}
    assert counted([-(10**400), -float("inf")]) == {-1 - OVERFLOW: 2}


def test_both_zeros_are_zero() -> None:
    assert counted([0, 0.0, -0.0, False, np.float32(0)]) == {0: 5}


def test_booleans_and_chunks() -> None:
    assert counted(pa.chunked_array([[True], [False, True]])) == {0: 1, 141: 2}
    assert counted(np.array([True, False])) == {0: 1, 141: 1}
    assert as_numbers(pa.chunked_array([], pa.int64())).tolist() == []


def test_counting_adds() -> None:
    made = Histogram({141: 5})
    count([1, 2], made)
    assert made.counts == {141: 6, 145: 1}
    count([], made)
    assert made.counts == {141: 6, 145: 1}


def test_a_line_of_jsonl_is_as_long_as_it_stands_in_the_file() -> None:
    block = JsonlBlock.parse(np.frombuffer(b'{"t":1}\n\n{"t": "\xc3\xa9"}\n', np.uint8))
    assert lengths(DocumentBatch.over(block, np.array([1, 0]))).tolist() == [11, 7]


def test_a_row_of_a_table_has_the_bytes_of_its_values() -> None:
    block = TableBlock(pa.table({"text": ["a", None, "ccc"], "n": [1, 2, None]}))
    batch = DocumentBatch.over(block, np.array([2, 0, -1]))
    assert lengths(batch).tolist() == [3, 9, 0]
    assert lengths(
        DocumentBatch.over(TableBlock(pa.table({"t": pa.array([], pa.string())})), np.array([-1]))
    ).tolist() == [0]


def test_unknown_origins_have_no_lengths() -> None:
    assert lengths(DocumentBatch("x", pa.table({"a": [1, 2]}))).tolist() == [0, 0]
