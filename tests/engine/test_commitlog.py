"""The commit log: round trip, torn tails, damage, a disk that is full in the middle of a line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tamis.engine.run.output.commit_log import CommitLog
from tamis.engine.schema import CommitRecord, CommittedFile, FileKind, ReplaceRecord
from tamis.errors import RunConflict

LINE = b'46853248 {"t":"commit","step":1,"cover":[],"files":[],"ledger":{}}\n'


def record(step: int) -> CommitRecord:
    return CommitRecord(step, [], [], {})


def test_records_come_back_in_order(tmp_path: Path) -> None:
    log = CommitLog(str(tmp_path / "log"))
    assert list(log.read()) == []
    file = CommittedFile("é\n", FileKind.OUTPUT, 1, 2, "0a", schema="{}", check="c", upload=("a", "b", ["c"]))
    commit = CommitRecord(1, [(0, 0, 5, False), (1, 0, 7, True)], [file, CommittedFile("x", FileKind.LISTED)], {"a": 1})
    log.append([commit, record(2)])
    log.append([ReplaceRecord(["é\n"], [file])])
    log.close()
    upload = {"upload": ["a", "b", ["c"]]}
    again = [commit._replace(files=[file._replace(**upload), commit.files[1]]), record(2)]
    assert list(CommitLog(log.path).read()) == [*again, ReplaceRecord(["é\n"], [file._replace(**upload)])]


def test_a_line_is_a_checksum_and_json(tmp_path: Path) -> None:
    log = CommitLog(str(tmp_path / "log"))
    log.append([record(1)])
    log.close()
    assert (tmp_path / "log").read_bytes() == LINE


def test_a_torn_tail_is_cut_off_and_appending_continues(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = CommitLog(str(path))
    log.append([record(1)])
    log.close()
    whole = path.read_bytes()
    for tail in (b"5", LINE[:8], LINE[:-1], LINE[:-3] + b"]\n", b"\0" * 40, b"\n", b"zzzzzzzz [1]\n"):
        path.write_bytes(whole + tail)
        log = CommitLog(str(path))
        assert list(log.read()) == [record(1)], tail
        # A reader cuts nothing off: who writes may be in the middle of this line.
        assert path.read_bytes() == whole + tail
        assert list(log.read(repair=True)) == [record(1)], tail
        assert path.read_bytes() == whole
        log.append([record(2)])
        log.close()
        assert list(CommitLog(str(path)).read()) == [record(1), record(2)]
        path.write_bytes(whole)


def test_damage_before_the_last_line_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = CommitLog(str(path))
    log.append([record(1), record(2), record(3)])
    log.close()
    data = bytearray(path.read_bytes())
    data[95] ^= 1
    path.write_bytes(data)
    with pytest.raises(RunConflict, match=r"damaged at byte 67.*--fresh"):
        list(CommitLog(str(path)).read())


def test_a_record_that_is_no_object_is_damage(tmp_path: Path) -> None:
    import zlib

    path = tmp_path / "log"
    body = b"[1,2,3]"
    path.write_bytes(b"%08x %s\n" % (zlib.crc32(body), body) * 2)
    with pytest.raises(RunConflict, match="damaged at byte 0"):
        list(CommitLog(str(path)).read())


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    log = CommitLog(str(path))
    log.append([record(1)])
    whole, real = path.read_bytes(), os.write
    n_calls = [0]

    def short(fd: int, data: Any) -> int:
        n_calls[0] += 1
        if n_calls[0] == 2:
            raise OSError(28, "No space left on device")
        return real(fd, data[:5])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", short)
        with pytest.raises(OSError, match="No space"):
            log.append([record(2)])
    assert n_calls == [2]
    assert path.read_bytes() == whole
    log.append([record(3)])
    log.close()
    assert list(CommitLog(str(path)).read()) == [record(1), record(3)]


def test_nothing_is_appended_after_half_a_line_that_cannot_be_truncated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    log = CommitLog(str(path))
    log.append([record(1)])

    def fails(*_: Any) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fails)
        patch.setattr(os, "ftruncate", fails)
        with pytest.raises(OSError, match="Input/output error"):
            log.append([record(2)])
    size = path.stat().st_size
    with pytest.raises(OSError, match="its last write failed half-way; run the same command again"):
        log.append([record(3)])
    log.close()
    assert path.stat().st_size == size
