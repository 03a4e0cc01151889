"""Names of folders for the values of fields: nothing escapes, nothing collides, everything comes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis.engine.run.output.names import check_name
from tamis.errors import RunConflict, UsageError
from tamis.formats import hive


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=60), min_size=1, max_size=6))
def test_values_come_back_from_one_folder_below_the_output(texts: list[str]) -> None:
    values = {(text or None,) for text in texts}
    folders = hive.folders(["k"], values)
    assert len({folder.casefold() for folder in folders.values()}) == len(values)
    paths = [f"/out/{folder}/part-00000.jsonl" for folder in folders.values()]
    read = hive.Folders(["/out"], paths)
    for (text,), folder in folders.items():
        assert folder.count("/") == 0
        assert len(folder.encode()) <= 255
        assert check_name(f"{folder}/part-00000.jsonl")
        found = read.values_of(f"/out/{folder}/part-00000.jsonl")["k"]
        assert found is None if text is None else "~" in folder or str(found) == text


def test_numbers_come_back_as_numbers_if_all_values_are() -> None:
    paths = ["/d/b=3/s=1/a.jsonl", "/d/b=-12/s=01/a.jsonl", "/d/b=__HIVE_DEFAULT_PARTITION__/s=x/a.jsonl"]
    folders = hive.Folders(["/d/*/*"], paths)
    assert [folders.values_of(path) for path in paths] == [
        {"b": 3, "s": "1"},
        {"b": -12, "s": "01"},
        {"b": None, "s": "x"},
    ]
    assert hive.Folders(["/d/b=3"], paths).values_of(paths[0]) == {"s": 1}  # what is above the input is no field


def test_folders_that_differ_by_case_are_told_apart() -> None:
    folders = hive.folders(["k", "n"], [("Straße", "1"), ("STRASSE", "1"), ("strasse", "1"), ("Other", "1")])
    assert len({folder.casefold() for folder in folders.values()}) == 4
    assert folders["Other", "1"] == "k=Other/n=1"


def test_long_values_have_folders_of_their_own() -> None:
    folders = hive.folders(["k"], [("ü" * 300 + "a",), ("ü" * 300 + "b",), ("/" * 100,)])
    assert len(set(folders.values())) == 3
    assert all(len(folder.encode()) <= 255 for folder in folders.values())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("a,,b", "names of fields"),
        ("a,a", "named twice"),
        (["_a"], "rename"),
        ([f"f{i}" for i in range(9)], "at most 8"),
    ],
)
def test_bad_fields_are_refused(fields: str | list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        hive.check_names(fields, "partition_by")


@pytest.mark.parametrize("name", ["../a", "k=1/../a", "k=1//a", "k/a", "/a", "k=1/..", ".k=1/a", "k=1/", "k=a\\b/c"])
def test_names_that_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(RunConflict):
        check_name(name)
