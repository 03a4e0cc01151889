"""Profiles on disk: where, whole or not at all, and never a failed run because of one."""

import json
import os
from pathlib import Path

import pytest

from tamis.memory import profiles
from tamis.memory.predictor import MIB, Predictor


@pytest.fixture
def environ(tmp_path):
    return {"TAMIS_CACHE_DIR": str(tmp_path / "cache")}


def file_of(environ, key):
    return profiles.profile_dir(environ) / f"{profiles.machine_id()}-{key}.json"


def test_folder_follows_the_environment():
    assert profiles.profile_dir({"TAMIS_CACHE_DIR": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a/profiles")
    assert profiles.profile_dir({"XDG_CACHE_HOME": "/b", "HOME": "/h"}) == Path("/b/tamis/profiles")
    assert profiles.profile_dir({"XDG_CACHE_HOME": "b", "HOME": "/h"}) == Path("/h/.cache/tamis/profiles")


def test_saved_numbers_come_back(environ):
    model = Predictor()
    model.observe(MIB, 100, 8 * MIB)
    assert profiles.load("abc", environ) is None
    assert profiles.save("abc", model.to_dict(), environ) is True
    assert profiles.load("abc", environ) == model.to_dict()
    assert os.listdir(profiles.profile_dir(environ)) == [f"{profiles.machine_id()}-abc.json"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"format": 2, "key": "k", "numbers": {}}',
        b'{"format": 1, "key": "other", "numbers": {}}',
        b'{"format": 1, "key": "k", "numbers": []}',
        b'{"format": 1, "key": "k", "numbers": {"a": NaN}}',
        b"[" * 200_000,
        b'{"format": 1, "key": "k", "numbers": {"a": "' + b"x" * 1_000_000 + b'"}}',
    ],
)
def test_damaged_files_are_ignored_and_replaced(environ, content):
    path = file_of(environ, "k")
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert profiles.load("k", environ) is None
    assert profiles.save("k", {"a": 1}, environ) is True
    assert profiles.load("k", environ) == {"a": 1}


def test_unwritable_folder_gives_false(tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert profiles.save("k", {"a": 1}, {"TAMIS_CACHE_DIR": str(tmp_path / "cache")}) is False
    assert profiles.list_profiles({"TAMIS_CACHE_DIR": str(tmp_path / "cache")}) == []


@pytest.mark.parametrize("numbers", [{"a": float("nan")}, {"a": object()}, {"a": "x" * 1_000_001}])
def test_what_could_not_be_read_back_is_not_written(environ, numbers):
    profiles.save("k", {"a": 1}, environ)
    assert profiles.save("k", numbers, environ) is False
    assert profiles.load("k", environ) == {"a": 1}


@pytest.mark.parametrize("key", ["", "../x", "a/b", ".hidden", "x" * 101])
def test_keys_that_could_leave_the_folder_are_refused(environ, key):
    with pytest.raises(ValueError, match="profile key"):
        profiles.load(key, environ)


def test_list_shows_profiles_and_nothing_else(environ):
    profiles.save("b", {}, environ)
    profiles.save("a", {"x": 1}, environ)
    folder = profiles.profile_dir(environ)
    (folder / "000000000000-a.json").write_text(json.dumps({}))
    (folder / "notes.txt").write_text("")
    here = profiles.machine_id()
    assert sorted((p.key, p.machine == here, p.this_machine) for p in profiles.list_profiles(environ)) == [
        ("a", False, False),
        ("a", True, True),
        ("b", True, True),
    ]
