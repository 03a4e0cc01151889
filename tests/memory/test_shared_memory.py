"""What ended processes leave in shared memory: removed if it was theirs and nobody uses it, and never otherwise."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from tamis.memory import shared_memory


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
        assert shared_memory.mapped_by([os.getpid()], str(tmp_path)) == {str(tmp_path / "a")}
    assert shared_memory.mapped_by([2**22], str(tmp_path)) == set()


def test_what_was_there_before_or_is_used_or_is_no_file_stays(tmp_path: Path) -> None:
    old = made(tmp_path / "old")
    before = shared_memory.present(str(tmp_path))
    gone, opened, mapped = (made(tmp_path / name) for name in ("gone", "opened", "mapped"))
    (tmp_path / "link").symlink_to(old)
    with open(opened, "rb"), open(mapped, "r+b") as file:
        held = mmap.mmap(file.fileno(), 0)
        file.close()
        asked = {old, gone, opened, mapped, str(tmp_path / "link"), str(tmp_path / "missing")}
        assert shared_memory.remove_files(asked, before) == [gone]
        held.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "mapped", "old", "opened"]


def test_what_belongs_to_somebody_else_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path / "a")
    monkeypatch.setattr(shared_memory.os, "geteuid", lambda: os.getuid() + 1)
    assert shared_memory.remove_files([path], set()) == []


def test_segments_without_a_table_are_none() -> None:
    assert shared_memory.parse_segments("", [1]) == []
    assert shared_memory.remove_segments([]) == 0


# -- files in memory that are open and not mapped ---
MB = 1_000_000


def test_a_nameless_file_counts_by_what_it_takes_until_it_is_mapped() -> None:
    before = set(shared_memory.bytes_by_file([os.getpid()], set()))
    fd = os.memfd_create("tamis-test")
    try:
        os.ftruncate(fd, 50 * MB)
        assert set(shared_memory.bytes_by_file([os.getpid()], set())) == before  # nothing is in it
        os.write(fd, b"x" * 3 * MB)
        found = shared_memory.bytes_by_file([os.getpid()], set())
        (path,) = set(found) - before
        assert path.startswith("/memfd:tamis-test")
        assert 3 * MB <= found[path] < 4 * MB
        with mmap.mmap(fd, 3 * MB):
            assert (
                set(shared_memory.bytes_by_file([os.getpid()], set())) == before
            )  # its pages are those of this process
    finally:
        os.close(fd)


def test_files_of_the_run_itself_do_not_count() -> None:
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("no /dev/shm")
    folder = f"/dev/shm/tamis-test-{os.getpid()}"
    os.mkdir(folder)
    try:
        devices = shared_memory.memory_devices()
        with open(f"{folder}/a", "wb") as file:
            file.write(b"x" * MB)
            file.flush()
            assert shared_memory.bytes_by_file([os.getpid()], devices, [folder]) == {}
            assert list(shared_memory.bytes_by_file([os.getpid()], devices)) == [f"{folder}/a"]
        assert shared_memory.bytes_by_file([os.getpid()], devices) == {}
    finally:
        os.unlink(f"{folder}/a")
        os.rmdir(folder)


def test_all_of_it_on_the_machine_is_known() -> None:
    before = shared_memory.shared_total()
    with mmap.mmap(-1, 64 * MB) as held:
        held.write(b"x" * 64 * MB)
        assert shared_memory.shared_total() - before > 20 * MB  # others may give some back meanwhile


def test_of_the_gone_nothing_is_known() -> None:
    assert shared_memory.bytes_by_file([2**22], set()) == {}
