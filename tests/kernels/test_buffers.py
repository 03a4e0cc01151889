"""Views of Arrow string columns, and back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.kernels.buffers import StringBuffers, chunk_buffers, string_array, string_buffers

VALUES = ["", None, "abc", "\u6f22\u5b57", None, "x" * 100, "\U0001f600"]


def values_of(views: StringBuffers) -> list[bytes | None]:
    found = [views.data[views.offsets[i] : views.offsets[i + 1]].tobytes() for i in range(views.n_rows)]
    if views.validity is None:
        return list(found)
    return [value if valid else None for value, valid in zip(found, views.validity, strict=True)]


def encoded(values: list[str | None]) -> list[bytes | None]:
    return [None if value is None else value.encode() for value in values]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_every_type_and_slice(kind: pa.DataType) -> None:
    array = pa.array(encoded(VALUES) * 5, pa.binary()).cast(kind)
    expected = encoded(VALUES) * 5
    for start in (0, 1, 7, 8, 9, 34, 35):
        for length in (0, 1, 5, 35):
            part = array.slice(start, length)
            assert values_of(string_buffers(part)) == expected[start : start + length]


def test_no_copy_of_the_data_and_no_validity_without_nulls() -> None:
    array = pa.array(["abc", "def"], pa.large_string())
    views = string_buffers(array)
    assert views.data.ctypes.data == array.buffers()[2].address
    assert views.offsets.ctypes.data == array.buffers()[1].address
    assert not views.data.flags.writeable
    assert views.validity is None
    assert string_buffers(pa.array(["a", None, "b"]).slice(2)).validity is None


def test_empty_and_all_null_arrays() -> None:
    for kind in (pa.string(), pa.large_string()):
        assert values_of(string_buffers(pa.array([], kind))) == []
        assert values_of(string_buffers(pa.nulls(3, kind))) == [None, None, None]


def test_chunks_in_order_without_the_empty_ones() -> None:
    column = pa.chunked_array([pa.array(["a", None]), pa.array([], pa.string()), pa.array(["b"])])
    assert [values_of(views) for views in chunk_buffers(column)] == [[b"a", None], [b"b"]]
    assert [values_of(views) for views in chunk_buffers(pa.array(["c"]))] == [[b"c"]]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_binary()])
def test_spans_of_all_values_and_of_some(kind: pa.DataType) -> None:
    views = string_buffers(pa.array(["no", "ab", None, "", "cdé"], kind)[1:])
    starts, ends = views.spans()
    assert (starts.dtype, ends.dtype) == (np.int64, np.int64)
    assert [starts.tolist(), ends.tolist()] == [[2, 4, 4, 4], [4, 4, 4, 8]]
    assert [one.tolist() for one in views.spans(np.array([3, 0, 3]))] == [[4, 2, 4], [8, 4, 8]]
    assert [one.tolist() for one in views.spans(np.array([], np.int64))] == [[], []]


def test_a_null_ends_where_it_begins_whatever_its_bytes_are() -> None:
    views = StringBuffers(np.array([0, 3, 5], np.int32), np.zeros(5, np.uint8), np.array([False, True]))
    assert [one.tolist() for one in views.spans()] == [[0, 3], [0, 5]]


@pytest.mark.parametrize("offsets", [[-1, 2, 4], [0, 3, 2], [0, 2, 6]])
def test_spans_outside_the_data_are_refused(offsets: list[int]) -> None:
    views = StringBuffers(np.array(offsets, np.int64), np.zeros(5, np.uint8), None)
    with pytest.raises(ValueError, match="outside the 5 bytes of data"):
        views.spans()


def test_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="expected a string or binary column, got int64"):
        string_buffers(pa.array([1]))


def test_string_array_is_a_view() -> None:
    offsets, data = np.array([0, 1, 3]), np.frombuffer(b"abc", np.uint8)
    array = string_array(offsets, data)
    array.validate(full=True)
    assert array.to_pylist() == ["a", "bc"]
    assert array.type == pa.large_string()
    assert array.buffers()[2].address == data.ctypes.data


def test_string_array_refuses_other_offsets() -> None:
    for offsets in (np.zeros(0, np.int64), np.array([0, 1], np.int32), np.arange(6)[::2]):
        with pytest.raises(ValueError, match="expected contiguous int64 offsets"):
            string_array(offsets, np.frombuffer(b"abcdef", np.uint8))
    with pytest.raises(ValueError, match="reach from 0 to 9"):
        string_array(np.array([0, 9]), np.frombuffer(b"abc", np.uint8))
    with pytest.raises(ValueError, match="validity of 1 rows"):
        string_array(np.array([0, 1]), np.frombuffer(b"abc", np.uint8), np.array([True, False]))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=30))
def test_round_trip(values: list[str | None]) -> None:
    views = string_buffers(pa.array(values, pa.large_string()))
    back = string_array(views.offsets, views.data, views.validity)  # type: ignore[arg-type]
    back.validate(full=True)
    assert back.to_pylist() == values
    assert back.null_count == values.count(None)
