"""Which row an object came from."""

from __future__ import annotations

from typing import Any

import numpy as np

from tamis.tasks.returned_data import FrameObjectIndex, by_objects, by_values, own_id


def objects(*values: Any) -> Any:
    return np.fromiter(values, object, len(values))


def test_objects_that_python_keeps_once_name_no_document() -> None:
    assert [own_id(v) for v in (None, True, 5, -5, 256, 65536, "", "a", b"xx")] == [0] * 9
    for own in ("ab", 1.5, 70_000, [], {}):
        assert own_id(own) == id(own)


def test_what_the_objects_of_a_row_say_together() -> None:
    texts, numbers = objects(*(f"text {i}" for i in range(4))), objects(0.5, 1.5, None, 3.5)
    handed = FrameObjectIndex([(texts, np.arange(4)), (numbers, np.arange(4))])
    rows = [
        (texts[2], None, 2),
        (texts[1], numbers[1], 1),
        ("new", None, -1),
        (texts[0], numbers[3], -1),  # one says 0, the other 3
        (None, numbers[0], 0),
    ]
    found = by_objects(handed, [objects(*(r[0] for r in rows)), objects(*(r[1] for r in rows))])
    assert found.tolist() == [r[2] for r in rows]


def test_an_object_in_one_row_counts_more_than_one_in_many() -> None:
    texts, langs = objects("text 0", "text 1", "text 2"), objects("en ", "en ", "en ")
    langs[1], langs[2] = "".join(["e", "n "]), "".join(["en", " "])
    handed = FrameObjectIndex([(texts, np.arange(3)), (langs, np.arange(3))])
    shared = objects(langs[0], langs[0], langs[0])
    assert by_objects(handed, [texts, shared]).tolist() == [0, 1, 2]
    assert by_objects(handed, [shared]).tolist() == [0, 0, 0]  # copies, as `explode` makes them


def test_an_object_that_was_given_twice_names_no_document() -> None:
    one = "the same text"
    handed = FrameObjectIndex([(objects(one, one, "another"), np.arange(3))])
    assert by_objects(handed, [objects(one)]).tolist() == [-1]


def test_whole_rows_of_equal_values() -> None:
    parents = [["a", "a", "b", "c", "c"], [1, 1.0, True, None, {"x": 1}]]
    children = [["a", "b", "b", "c", "c", "a", "a"], [1, 1, True, None, {"x": 1.0}, 1, "1"]]
    assert by_values(parents, children, [7, 7, 1, 2, 3]).tolist() == [0, -1, 2, 3, 4, 1, -1]
    assert by_values(parents, children, [7, 8, 1, 2, 3]).tolist() == [-1, -1, 2, 3, 4, -1, -1]
