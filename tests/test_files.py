"""Files that appear whole or not at all, locks, folders that are ours alone.

What needs another user is in faults/test_trust.py.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tamis import files
from tamis.errors import RunConflict
from tests.support.run_dirs import run_dir_path


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def about(uid: int, mode: int) -> os.stat_result:
    return os.stat_result((mode, 1, 1, 1, uid, 0, 0, 0, 0, 0))


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """Make a file that must not change."""
    path = tmp_path / "victim"
    path.write_text("precious")
    return path


@pytest.mark.parametrize("make", [files.create, files.fresh])
def test_a_new_file_takes_the_place_of_a_link_and_not_of_what_it_points_to(
    tmp_path: Path, victim: Path, make: object
) -> None:
    link = tmp_path / "staged"
    link.symlink_to(victim)
    made = make(link)  # type: ignore[operator]
    if hasattr(made, "close"):
        made.write(b"new")
        made.close()
    assert victim.read_text() == "precious"
    assert not link.is_symlink()


def test_folders_and_pipes_in_the_way_of_a_new_file_stay(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(FileExistsError):
            files.create(tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == ["folder", "pipe"]


def test_replacing_is_whole_or_nothing_and_leaves_nothing_next_to(tmp_path: Path, victim: Path) -> None:
    path = tmp_path / "report.html"
    path.symlink_to(victim)
    (tmp_path / "report.html.tmp").symlink_to(victim)
    files.write_text(path, "one \ud800")
    assert path.read_bytes() == b"one \\ud800"
    assert victim.read_text() == "precious"

    def half() -> None:
        with files.replacing(path) as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half()
    assert path.read_bytes() == b"one \\ud800"
    assert sorted(os.listdir(tmp_path)) == ["report.html", "report.html.tmp", "victim"]


def test_files_of_a_run_are_written_by_their_owner_only_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        files.write_json(tmp_path / "plan.json", {"a": 1})
        os.close(files.open_to_append(tmp_path / "log"))
        files.own_folder(tmp_path / "out.tamis", "", 0o755)
        files.own_folder(tmp_path / "staged", "")
        files.write_bytes(tmp_path / "shared", b"")
    finally:
        os.umask(before)
    names = ("plan.json", "log", "out.tamis", "staged", "shared")
    assert [mode_of(tmp_path / n) for n in names] == [0o644, 0o644, 0o755, 0o700, 0o666]
    assert (tmp_path / "plan.json").read_text() == '{"a": 1}'


def test_a_link_is_not_appended_to(tmp_path: Path, victim: Path) -> None:
    (tmp_path / "log").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        files.open_to_append(tmp_path / "log")


def test_old_leftovers_are_swept_and_young_ones_may_be_somebodys(tmp_path: Path) -> None:
    for name in (".plan.json.00ff.tmp", ".young.00ff.tmp", "data.tmp", ".kept"):
        (tmp_path / name).write_text("x")
    long_ago = time.time() - 3600
    for name in (".plan.json.00ff.tmp", "data.tmp", ".kept"):
        os.utime(tmp_path / name, (long_ago, long_ago))
    files.sweep(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".kept", ".young.00ff.tmp", "data.tmp"]


def test_moving_never_replaces(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    for act in (files.move, files.publish):
        with pytest.raises(FileExistsError):
            act(tmp_path / "a", tmp_path / "b")
    files.move(tmp_path / "a", tmp_path / "c")
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"b": "b", "c": "a"}


# -- locks ------------------------------------------------------------------------------------------------------------
def test_a_lock_is_held_until_it_is_closed_and_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = files.lock(path, "busy")
    with pytest.raises(RunConflict, match="busy"):
        files.lock(path, "busy")
    os.unlink(path)
    second = files.lock(path, "busy")  # the first holder gave its file up: this is another one
    os.close(first)
    with pytest.raises(RunConflict, match="busy"):
        files.lock(path, "busy")
    os.close(second)


def test_who_looks_whether_a_lock_is_held_does_not_keep_others_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    path = tmp_path / "lock"
    path.touch()
    looking = open(path, "rb")  # noqa: SIM115
    fcntl.flock(looking, fcntl.LOCK_SH)  # as `is_held` does, for a moment
    monkeypatch.setattr(files.time, "sleep", lambda seconds: looking.close())
    os.close(files.lock(path, "busy"))


def test_a_lock_whose_file_vanished_between_opening_and_locking_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    path, real, n_calls = tmp_path / "lock", fcntl.flock, []

    def flock(fd: int, how: int) -> None:
        if not n_calls:
            os.unlink(path)
        n_calls.append(fd)
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    fd = files.lock(path, "busy")
    assert len(n_calls) == 2
    assert os.path.samestat(os.fstat(fd), path.stat())
    os.close(fd)


# -- folders ----------------------------------------------------------------------------------------------------------
def test_whose_a_folder_is() -> None:
    assert files.not_ours(about(1000, 0o40755), 1000) == ""
    assert files.not_ours(about(1000, 0o40700), 1000) == ""
    assert files.not_ours(about(1000, 0o42775), 1000) == "can be written by others (mode 2775)"
    assert files.not_ours(about(1000, 0o40702), 1000) == "can be written by others (mode 0702)"
    assert files.not_ours(about(1000, 0o40777), 1000, has_modes=False) == ""
    assert files.not_ours(about(987654, 0o40700), 987655) == "belongs to user 987654 (you are user 987655)"
    assert files.not_ours(about(987654, 0o40700), 0).startswith("belongs to user 987654 (you are root")


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777])
def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    folder = run_dir_path(tmp_path)
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(RunConflict, match=rf"can be written by others \(mode {mode:04o}\).*; do that"):
        files.own_folder(folder, "do that")
    assert mode_of(folder) == mode
    assert os.listdir(folder) == []


def test_a_folder_of_ours_is_closed_where_it_was_open_to_be_looked_at(tmp_path: Path) -> None:
    folder = tmp_path / "staged"
    folder.mkdir()
    folder.chmod(0o755)
    files.own_folder(folder, "")
    assert mode_of(folder) == 0o700


def test_a_file_system_that_gives_what_we_make_to_somebody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a network makes nobody of root: whose a folder is shows only beside what we make there ourselves."""
    files.own_folder(tmp_path / "ours", "")
    real = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: real + 1)
    files.own_folder(tmp_path / "ours", "")
    assert os.listdir(tmp_path / "ours") == []


def test_what_is_no_folder_is_refused_by_name(tmp_path: Path, victim: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(RunConflict, match=r"link is a link: .*; give another"):
        files.own_folder(tmp_path / "link", "give another")
    with pytest.raises(RunConflict, match="victim is no folder"):
        files.own_folder(victim, "")
    with pytest.raises(RunConflict, match="cannot write to"):
        files.own_folder(victim / "below", "")


def test_scratch_is_where_other_users_cannot_swap_it(tmp_path: Path) -> None:
    files.check_scratch_parent(tmp_path / "made" / "now")
    (tmp_path / "made").chmod(0o1777)
    files.check_scratch_parent(tmp_path / "made")
    (tmp_path / "made").chmod(0o777)
    with pytest.raises(RunConflict, match=r"can be written by everybody.*chmod \+t"):
        files.check_scratch_parent(tmp_path / "made")
    assert files.unguessable(tmp_path, "tamis-") != files.unguessable(tmp_path, "tamis-")


def test_the_end_of_a_log_is_no_longer_than_requested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    log.write_text("0123456789")
    assert (files.tail(log, 4), files.tail(log, 40), files.tail(tmp_path / "none")) == ("6789", "0123456789", "")
    monkeypatch.setattr(os.path, "getsize", lambda _: 6)  # somebody appends meanwhile
    assert len(files.tail(log, 4)) == 4


def test_it_loads_nothing_heavy() -> None:
    code = (
        "import sys, tamis.files; print(len([m for m in sys.modules if m.startswith(('numpy', 'tempfile', 'random'))]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"
