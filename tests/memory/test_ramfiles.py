"""Files in memory that are open and not mapped."""

from __future__ import annotations

import mmap
import os

import pytest

from tamis.memory import ramfiles

MB = 1_000_000


def test_a_nameless_file_counts_by_what_it_takes_until_it_is_mapped() -> None:
    before = set(ramfiles.bytes_by_file([os.getpid()], set()))
    fd = os.memfd_create("tamis-test")
    try:
        os.ftruncate(fd, 50 * MB)
        assert set(ramfiles.bytes_by_file([os.getpid()], set())) == before  # nothing is in it
        os.write(fd, b"x" * 3 * MB)
        found = ramfiles.bytes_by_file([os.getpid()], set())
        (path,) = set(found) - before
        assert path.startswith("/memfd:tamis-test")
        assert 3 * MB <= found[path] < 4 * MB
        with mmap.mmap(fd, 3 * MB):
            assert set(ramfiles.bytes_by_file([os.getpid()], set())) == before  # its pages are those of this process
    finally:
        os.close(fd)


def test_files_of_the_run_itself_do_not_count() -> None:
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("no /dev/shm")
    folder = f"/dev/shm/tamis-test-{os.getpid()}"
    os.mkdir(folder)
    try:
        devices = ramfiles.memory_devices()
        with open(f"{folder}/a", "wb") as file:
            file.write(b"x" * MB)
            file.flush()
            assert ramfiles.bytes_by_file([os.getpid()], devices, [folder]) == {}
            assert list(ramfiles.bytes_by_file([os.getpid()], devices)) == [f"{folder}/a"]
        assert ramfiles.bytes_by_file([os.getpid()], devices) == {}
    finally:
        os.unlink(f"{folder}/a")
        os.rmdir(folder)


def test_all_of_it_on_the_machine_is_known() -> None:
    before = ramfiles.shared_total()
    with mmap.mmap(-1, 64 * MB) as held:
        held.write(b"x" * 64 * MB)
        assert ramfiles.shared_total() - before > 20 * MB  # others may give some back meanwhile


def test_of_the_gone_nothing_is_known() -> None:
    assert ramfiles.bytes_by_file([2**22], set()) == {}
