"""What ended processes leave in shared memory: removed if it was theirs and nobody uses it, and never otherwise."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from tamis.memory import shm_cleanup


def made(path: Path, n_bytes: int = 4096) -> str:
    path.write_bytes(b"x" * n_bytes)
    return str(path)


def test_only_shared_mappings_of_files_in_the_folder_itself_count(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    held = []
    for path in (tmp_path / "a", tmp_path / "below" / "b"):
        with open(made(path), "r+b") as file:
            held.append(mmap.mmap(file.fileno(), 0))
    with open(made(tmp_path / "c"), "r+b") as file:
        held.append(mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE))
        assert shm_cleanup.mapped_by([os.getpid()], str(tmp_path)) == {str(tmp_path / "a")}
    assert shm_cleanup.mapped_by([2**22], str(tmp_path)) == set()


def test_what_was_there_before_or_is_used_or_is_no_file_stays(tmp_path: Path) -> None:
    old = made(tmp_path / "old")
    before = shm_cleanup.present(str(tmp_path))
    gone, opened, mapped = (made(tmp_path / name) for name in ("gone", "opened", "mapped"))
    (tmp_path / "link").symlink_to(old)
    with open(opened, "rb"), open(mapped, "r+b") as file:
        held = mmap.mmap(file.fileno(), 0)
        file.close()
        asked = {old, gone, opened, mapped, str(tmp_path / "link"), str(tmp_path / "missing")}
        assert shm_cleanup.remove_files(asked, before) == [gone]
        held.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "mapped", "old", "opened"]


def test_what_belongs_to_somebody_else_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path / "a")
    monkeypatch.setattr(shm_cleanup.os, "geteuid", lambda: os.getuid() + 1)
    assert shm_cleanup.remove_files([path], set()) == []


def test_segments_without_a_table_are_none() -> None:
    assert shm_cleanup.parse_segments("", [1]) == []
    assert shm_cleanup.remove_segments([]) == 0
