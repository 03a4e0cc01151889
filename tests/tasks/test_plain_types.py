"""Arrays in plain types: the same values, at any depth, also of slices."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tamis.formats.table_files import plain_types
from tamis.tasks.columns import casting
from tamis.tasks.columns.casting import is_plain, plain_array

LISTS = [["a", "b"], None, [], ["c", None]]
ODD = [
    pa.array(["a", "a", None, "b"], pa.run_end_encoded(pa.int16(), pa.string())),
    pa.array(LISTS, pa.list_view(pa.string())),
    pa.array(LISTS, pa.large_list_view(pa.string_view())),
    pa.array(LISTS, pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    pa.array([["a", "b"], None, ["c", "d"], ["e", None]], pa.list_(pa.string_view(), 2)),
    pa.array([{"x": v} for v in LISTS], pa.struct([("x", pa.list_view(pa.string()))])),
    pa.StructArray.from_arrays(
        [pa.array([1, 1, None, 2], pa.run_end_encoded(pa.int32(), pa.int8()))],
        ["x"],
        mask=pa.array([False, True, False, False]),
    ),
    pa.DictionaryArray.from_arrays([0, None, 1, 0], pa.array([b"a", b"b"], pa.binary_view())),
    pa.ListViewArray.from_arrays(
        [3, 0, 0, 1], [1, 0, 2, 2], pa.array(["a", "b", "c", "d"])
    ),  # in another order, shared
]


@pytest.mark.parametrize("array", ODD, ids=lambda array: str(array.type)[:40])
def test_values_stay_whatever_they_are_stored_as(array: pa.Array) -> None:
    assert not is_plain(array.type)
    for first, n in ((0, 4), (1, 2), (3, 1), (4, 0)):
        part = array.slice(first, n)
        made = plain_array(part)
        made.validate(full=True)
        assert is_plain(made.type)
        assert made.to_pylist() == part.to_pylist()
        assert plain_types(pa.table({"x": part}))["x"].to_pylist() == part.to_pylist()


def test_maps_and_unions_are_handed_through() -> None:
    of_map = pa.array([[("k", "v")], None], pa.map_(pa.string(), pa.dictionary(pa.int8(), pa.string())))
    of_union = pa.UnionArray.from_dense(
        pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array(["a"]).dictionary_encode(), pa.array([1])]
    )
    table = pa.table({"map": of_map, "union": of_union})
    assert plain_types(table).equals(table)


def test_lists_that_share_more_items_than_a_list_can_hold_are_a_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(casting, "MAX_LIST_ITEMS", 5)
    shared = pa.ListViewArray.from_arrays([0, 0], [3, 3], pa.array([1, 2, 3]))
    with pytest.raises(MemoryError, match="2 lists have 6 items in all"):
        plain_array(shared)


def test_repeated_texts_have_offsets_for_any_number_of_bytes() -> None:
    items = pa.array(["x", "y", "x"]).dictionary_encode()
    assert plain_array(pa.ListArray.from_arrays([0, 2, 3], items)).type.value_type == pa.large_string()
    assert plain_array(pa.StructArray.from_arrays([items], ["k"])).type == pa.struct([("k", pa.large_string())])
