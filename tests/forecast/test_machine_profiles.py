"""Profiles on disk: where, whole or not at all, and never a failed run because of one."""

import json
import os
from pathlib import Path

import pytest

from tamis.errors import UsageError
from tamis.forecast import machine_profiles
from tamis.forecast.prediction import Conditions, RunMeasurement
from tamis.memory.predictor import MIB, Predictor


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Where profiles are kept while a test runs."""
    for name in ("TAMIS_PROFILE_DIR", "TAMIS_PROFILES", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TAMIS_CACHE_DIR", str(tmp_path / "cache"))


def file_of(key):
    return machine_profiles.profile_dir() / f"{machine_profiles.machine_id()}-{key}.json"


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"TAMIS_CACHE_DIR": "/a", "XDG_CACHE_HOME": "/b"}, "/a/profiles"),
        ({"TAMIS_PROFILE_DIR": "/p", "TAMIS_CACHE_DIR": "/a"}, "/p"),
        ({"XDG_CACHE_HOME": "/b", "HOME": "/h"}, "/b/tamis/profiles"),
        ({"XDG_CACHE_HOME": "b", "HOME": "/h"}, "/h/.cache/tamis/profiles"),
    ],
)
def test_folder_follows_the_environment(environ, folder, monkeypatch):
    monkeypatch.delenv("TAMIS_CACHE_DIR")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert machine_profiles.profile_dir() == Path(folder)


def test_saved_numbers_come_back():
    model = Predictor()
    model.observe(MIB, 100, 8 * MIB)
    assert machine_profiles.load("abc") is None
    assert machine_profiles.save("abc", model.to_dict()) is True
    assert machine_profiles.load("abc") == model.to_dict()
    assert os.listdir(machine_profiles.profile_dir()) == [f"{machine_profiles.machine_id()}-abc.json"]


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
def test_damaged_files_are_ignored_and_replaced(content):
    path = file_of("k")
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert machine_profiles.load("k") is None
    assert machine_profiles.save("k", {"a": 1}) is True
    assert machine_profiles.load("k") == {"a": 1}


def test_unwritable_folder_gives_false(tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert machine_profiles.save("k", {"a": 1}) is False
    assert machine_profiles.list_profiles() == []


@pytest.mark.parametrize("numbers", [{"a": float("nan")}, {"a": object()}, {"a": "x" * 1_000_001}])
def test_what_could_not_be_read_back_is_not_written(numbers):
    machine_profiles.save("k", {"a": 1})
    assert machine_profiles.save("k", numbers) is False
    assert machine_profiles.load("k") == {"a": 1}


@pytest.mark.parametrize("key", ["", "../x", "a/b", ".hidden", "x" * 101])
def test_keys_that_could_leave_the_folder_are_refused(key):
    with pytest.raises(ValueError, match="profile key"):
        machine_profiles.load(key)


def test_list_shows_profiles_and_nothing_else():
    machine_profiles.save("b", {})
    machine_profiles.save("a", {"x": 1})
    folder = machine_profiles.profile_dir()
    (folder / "000000000000-a.json").write_text(json.dumps({}))
    (folder / "notes.txt").write_text("")
    here = machine_profiles.machine_id()
    assert sorted((p.key, p.machine == here, p.is_this_machine) for p in machine_profiles.list_profiles()) == [
        ("a", False, False),
        ("a", True, True),
        ("b", True, True),
    ]


def numbers(name="gopher"):
    model = Predictor()
    model.observe(MIB, 100, 8 * MIB)
    run = RunMeasurement(Conditions(10**9, 2, 1, 1, 1, 5, 5, 5), 100, 2.0, 3.0, 2.5, 0, 4, 7, 1, 1.0, True)
    return {"name": name, "stages": ["a"], "segments": [model.to_dict()], "runs": [run.to_dict()]}


def test_a_profile_is_found_by_key_beginning_or_name():
    machine_profiles.save("abc1", numbers("first"))
    machine_profiles.save("abd2", numbers("second"))
    assert machine_profiles.find("abc1").name == "first"
    assert machine_profiles.find("abd").key == "abd2"
    assert machine_profiles.find("second").key == "abd2"
    with pytest.raises(UsageError, match="'ab' means 2 profiles"):
        machine_profiles.find("ab")
    with pytest.raises(UsageError, match="no profile 'zzz' for this machine"):
        machine_profiles.find("zzz")
    with pytest.raises(UsageError, match="no profile ''"):
        machine_profiles.find("")


def test_a_damaged_profile_that_is_requested_is_named():
    machine_profiles.save("abc", numbers())
    file_of("abc").write_bytes(b"{")
    with pytest.raises(UsageError, match="is damaged"):
        machine_profiles.find("abc")
