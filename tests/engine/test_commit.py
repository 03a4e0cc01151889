"""The commit protocol, stopped after every single file operation: recovery finds "before" or "after", nothing else."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tamis.engine.ledger import Ledger
from tamis.engine.messages import StagedFile
from tamis.engine.run.output import commit as commit_module
from tamis.engine.run.output.commit import Committer, commit_group, remove_orphans
from tamis.engine.run.output.directory import RunDir
from tamis.engine.run.output.names import name_of
from tamis.engine.schema import FileKind
from tamis.engine.supervisor.actions import CommitPartition, ReplaceFiles
from tamis.engine.units import Piece, PieceKind
from tamis.errors import RunConflict
from tamis.formats.compression.codecs import codec_of
from tamis.formats.compression.streams import StreamReader, StreamWriter
from tests.support.run_dirs import data_names, run_dir_path

OPERATIONS = ("open", "fsync", "fdatasync", "link", "write", "unlink", "close")


class PowerCut(BaseException):
    """The process is gone: nothing behind this operation happens."""


def make_job(folder: RunDir, root: int, text: str, quarantine: str = "") -> CommitPartition:
    ledger = Ledger()
    ledger.records.add(1, root)
    ledger.written.add(1, root)
    files: list[StagedFile] = []
    for kind, body in ((FileKind.OUTPUT, text), (FileKind.QUARANTINE, quarantine)):
        if body:
            path = os.path.join(folder.staged, f"u{root}.1.{kind}")
            Path(path).write_text(body)
            files.append(StagedFile(path, kind, 1, len(body), content=f"{root:032x}"))
    first = Piece(0, PieceKind.BYTES, "in", root * 100, root * 100 + 100)
    return CommitPartition(root, first, 0, [(0, root * 100, root * 100 + 100, False)], files, ledger.to_dict())


def prepare(tmp_path: Path) -> tuple[RunDir, list[CommitPartition | ReplaceFiles]]:
    """Return an output with a committed file and a foreign one, and a group of three pending commits."""
    folder = RunDir(str(tmp_path / "out"))
    folder.open()
    commit_group([make_job(folder, 1, "one\n")], folder.output, folder.quarantine, folder.log)
    folder.log.close()
    (tmp_path / "out" / "foreign.txt").write_text("mine")
    staged = os.path.join(folder.staged, "u9.1.out")
    Path(staged).write_text("ONE!!\n")
    replace = ReplaceFiles(
        9,
        ["part-000000-000000000000100.jsonl"],
        [StagedFile(staged, FileKind.OUTPUT, 1, 6, "parquet", f"{5:032x}")],
    )
    return folder, [make_job(folder, 2, "two\n", "bad two\n"), make_job(folder, 3, "three\n"), replace]


def crash_after(n: int, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> bool:
    """Run `act`, cut off in front of operation n. True when it came to its end."""
    left = [n]

    def counted(real: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if left[0] == 0:
                raise PowerCut(name)
            left[0] -= 1
            return real(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        for name in OPERATIONS:
            patch.setattr(os, name, counted(getattr(os, name), name))
        try:
            act()
        except PowerCut:
            return False
    return True


def visible(folder: RunDir) -> dict[str, str]:
    out = {e.name: Path(e.path).read_text() for e in os.scandir(folder.output) if e.is_file()}
    return out | {"quarantine/" + e.name: Path(e.path).read_text() for e in os.scandir(folder.quarantine)}


P = "part-000000-000000000000"
BEFORE = {"foreign.txt": "mine", P + "100.jsonl": "one\n"}
AFTER = {
    "foreign.txt": "mine",
    P + "100.jsonl.r.parquet": "ONE!!\n",
    P + "200.jsonl": "two\n",
    P + "300.jsonl": "three\n",
    "quarantine/quarantine-000000-000000000000200.jsonl": "bad two\n",
}


def test_a_crash_after_any_operation_leaves_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for n in range(200):
        case = tmp_path / str(n)
        folder, group = prepare(case)
        ended = crash_after(n, monkeypatch, lambda f=folder, g=group: commit_group(g, f.output, f.quarantine, f.log))  # type: ignore[misc]
        past = RunDir(folder.output).recover()
        state = visible(folder)
        assert state in (BEFORE, AFTER), n
        outputs = sorted(f.name for f in past.files.values() if f.is_output)
        assert outputs == sorted(n for n in state if n.startswith(P)), n
        assert past.ledger.records.n == (1 if state == BEFORE else 3)
        assert os.listdir(folder.staged) == []
        assert visible(folder) == state
        assert (
            RunDir(folder.output).recover().ledger.records.n == past.ledger.records.n
        )  # recovering twice changes nothing
        seen.append(state == AFTER)
        folder.close()
        if ended:
            break
    assert len(seen) > 20
    assert seen == sorted(seen)  # before, up to one operation; after, from there on
    assert True in seen
    assert False in seen


def test_a_crash_while_recovering_can_be_recovered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, group = prepare(tmp_path / "full")
    n_total = 0
    while not crash_after(
        n_total,
        monkeypatch,
        lambda f=folder, g=group: commit_group(g, f.output, f.quarantine, f.log),  # type: ignore[misc]
    ):
        folder.close()
        n_total += 1
        folder, group = prepare(tmp_path / f"probe{n_total}")
    for first in range(0, n_total, 3):
        for second in range(6):
            folder, group = prepare(tmp_path / f"{first}-{second}")
            crash_after(first, monkeypatch, lambda f=folder, g=group: commit_group(g, f.output, f.quarantine, f.log))  # type: ignore[misc]
            again = RunDir(folder.output)
            crash_after(second, monkeypatch, lambda a=again: a.recover())  # type: ignore[misc]
            RunDir(folder.output).recover()
            assert visible(folder) in (BEFORE, AFTER), (first, second)
            assert os.listdir(folder.staged) == []
            folder.close()


def test_a_torn_log_tail_at_every_byte_gives_before_or_after(tmp_path: Path) -> None:
    folder, group = prepare(tmp_path)
    before = Path(folder.log.path).read_bytes()
    commit_group([group[1]], folder.output, folder.quarantine, folder.log)
    folder.log.close()
    after = Path(folder.log.path).read_bytes()
    line = after[len(before) :]
    assert line.endswith(b"\n")
    for n in range(len(line)):
        Path(folder.log.path).write_bytes(before + line[:n])
        past = RunDir(folder.output).recover()
        assert past.ledger.records.n == 1, n
        assert Path(folder.log.path).read_bytes() == before
    Path(folder.log.path).write_bytes(after)
    assert RunDir(folder.output).recover().ledger.records.n == 2
    folder.close()


def test_a_damaged_middle_of_the_log_is_refused(tmp_path: Path) -> None:
    folder, group = prepare(tmp_path)
    commit_group([group[1]], folder.output, folder.quarantine, folder.log)
    folder.log.close()
    data = Path(folder.log.path).read_bytes()
    first_line = data.index(b"\n")
    for at in (0, 7, 8, 9, 20, first_line - 1):
        damaged = bytearray(data)
        damaged[at] ^= 0x55
        Path(folder.log.path).write_bytes(damaged)
        with pytest.raises(RunConflict, match="damaged at byte 0"):
            RunDir(folder.output).recover()
        assert Path(folder.log.path).read_bytes() == damaged  # nothing was cut off
    folder.close()


def test_a_final_name_that_exists_is_never_replaced(tmp_path: Path) -> None:
    folder = RunDir(str(tmp_path / "out"))
    folder.open()
    foreign = Path(folder.output) / (P + "200.jsonl")
    foreign.write_text("mine")
    results: list[str] = []
    committer = Committer(folder.output, folder.quarantine, folder.log, lambda: results.append("woken"))
    committer.submit(make_job(folder, 2, "two\n"))
    committer.close()
    result = committer.results.get()
    assert "cannot commit to" in result.error
    assert "File exists" in result.error
    assert (result.partition, result.covered, results) == (2, [], ["woken"])
    assert foreign.read_text() == "mine"
    assert RunDir(folder.output).recover().ledger.records.n == 0
    assert foreign.read_text() == "mine"
    folder.close()


def test_the_committing_thread_groups_what_waits_and_reports_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunDir(str(tmp_path / "out"))
    folder.open()
    sizes: list[int] = []
    real = commit_module.commit_group
    monkeypatch.setattr(
        commit_module, "commit_group", lambda group, *rest: (sizes.append(len(group)), real(group, *rest))
    )
    committer = Committer(folder.output, folder.quarantine, folder.log, lambda: None)
    for root in range(1, 151):
        committer.submit(make_job(folder, root, f"{root}\n"))
    committer.close()
    done = [committer.results.get() for _ in range(150)]
    assert [d.partition for d in done] == list(range(1, 151))
    assert [d.error for d in done] == [""] * 150
    assert done[11].covered == [(0, 1200, 1300, False)]
    assert done[11].n_bytes == 3
    assert sum(sizes) == 150
    assert max(sizes) <= 64
    assert RunDir(folder.output).recover().ledger.records.n == 150
    assert os.listdir(folder.staged) == []
    folder.close()


def test_names_sort_in_input_order_and_tell_steps_apart() -> None:
    job = CommitPartition(1, Piece(7, PieceKind.BYTES, "x", 1234), 0, [], [], {})
    later = CommitPartition(1, Piece(7, PieceKind.BYTES, "x", 1234), 2, [], [], {})
    assert name_of(job, StagedFile("x", FileKind.OUTPUT), 0) == "part-000007-000000000001234.jsonl"
    assert (
        name_of(job, StagedFile("x", FileKind.OUTPUT, extension="jsonl.gz"), 1)
        == "part-000007-000000000001234_000001.jsonl.gz"
    )
    assert (
        name_of(later, StagedFile("x", FileKind.OUTPUT, extension="parquet"), 0)
        == "part-000007-000000000001234-s2.parquet"
    )


def test_orphans_are_recognised_by_their_staged_twin_only(tmp_path: Path) -> None:
    for name in ("staged", "out", "quarantine"):
        (tmp_path / name).mkdir()
    (tmp_path / "staged" / "u1").write_text("half")
    os.link(tmp_path / "staged" / "u1", tmp_path / "out" / "part-1")
    (tmp_path / "staged" / "u2").write_text("never linked")
    (tmp_path / "out" / "part-2").write_text("half")  # the same contents, but not the same file
    removed = remove_orphans(*(str(tmp_path / n) for n in ("staged", "out", "quarantine")), set)
    assert removed == 1
    assert sorted(os.listdir(tmp_path / "out")) == ["part-2"]
    assert os.listdir(tmp_path / "staged") == []


def test_a_committed_file_is_kept_although_its_staged_name_is_left(tmp_path: Path) -> None:
    folder, group = prepare(tmp_path)
    names = [f.path for f in group[1].files]  # type: ignore[union-attr]
    shutil.copy(names[0], tmp_path / "copy")
    commit_group([group[1]], folder.output, folder.quarantine, folder.log)
    os.link(os.path.join(folder.output, P + "300.jsonl"), names[0])  # as if the crash came before the unlink
    folder.log.close()
    past = RunDir(folder.output).recover()
    assert past.files[P + "300.jsonl"].n_bytes == 6
    assert (Path(folder.output) / (P + "300.jsonl")).read_text() == "three\n"
    assert os.listdir(folder.staged) == []
    assert json.loads(Path(folder.log.path).read_text().splitlines()[-1][9:])["t"] == "commit"
    folder.close()


@pytest.mark.parametrize("codec", ["", ".gz", ".zst"])
def test_parts_of_one_partition_are_committed_as_one_file_in_the_order_of_the_input(tmp_path: Path, codec: str) -> None:
    folder = RunDir(str(tmp_path / "out"))
    folder.open()
    folder.make_scratch()
    files: list[StagedFile] = []
    for part, (at, lines) in enumerate(
        [(50, ["c", "d"]), (0, ["a"]), (20, ["b"])]
    ):  # in the order in which they were done
        path = os.path.join(folder.staged, f"u{part}.1.out")
        with StreamWriter(path, codec[1:] or None) as out:
            out.write("".join(f"{line}\n" for line in lines).encode())
        files.append(
            StagedFile(
                path,
                FileKind.OUTPUT,
                len(lines),
                os.path.getsize(path),
                f"jsonl{codec}",
                f"{2**127 + part:032x}",
                joins=True,
                place=(0, at, 0),
            )
        )
        other = os.path.join(folder.staged, f"u{part}.1.quarantine")
        Path(other).write_text("{}\n")
        files.append(StagedFile(other, FileKind.QUARANTINE, 1, place=(0, at, 0)))
    job = CommitPartition(1, Piece(0, PieceKind.BYTES, "in", 0, 99), 0, [(0, 0, 99, False)], files, Ledger().to_dict())
    commit_group([job], folder.output, folder.quarantine, folder.log)
    folder.close()
    name = f"part-000000-000000000000000.jsonl{codec}"
    assert [p.name for p in (tmp_path / "out").iterdir() if p.is_file()] == [name]
    with open(tmp_path / "out" / name, "rb") as raw:
        reader = StreamReader(raw, codec_of(name)) if codec else raw
        assert b"".join(reader.read(100) for _ in range(6)) == b"a\nb\nc\nd\n"
    (about,) = RunDir(str(tmp_path / "out")).files().written()
    assert (about.rows, about.n_bytes) == (4, (tmp_path / "out" / name).stat().st_size)
    assert int(about.content or "0", 16) == (3 * 2**127 + 3) % 2**128
    assert sorted(p.name for p in Path(folder.quarantine).iterdir()) == [
        "quarantine-000000-000000000000000.jsonl",
        "quarantine-000000-000000000000020_000001.jsonl",
        "quarantine-000000-000000000000050_000002.jsonl",
    ]


def test_parts_that_cannot_follow_each_other_stay_files_of_their_own(tmp_path: Path) -> None:
    folder = RunDir(str(tmp_path / "out"))
    folder.open()
    folder.make_scratch()
    files: list[StagedFile] = []
    for part, at in enumerate([9, 0]):
        path = Path(folder.staged) / f"u{part}.1.out"
        path.write_text(str(at))
        files.append(StagedFile(str(path), FileKind.OUTPUT, extension="parquet", place=(0, at, 0)))
    job = CommitPartition(1, Piece(0, PieceKind.ROWS, "in", 0, 99), 0, [(0, 0, 99, False)], files, Ledger().to_dict())
    commit_group([job], folder.output, folder.quarantine, folder.log)
    folder.close()
    found = {p.name: p.read_text() for p in (tmp_path / "out").iterdir() if p.is_file()}
    assert found == {"part-000000-000000000000000.parquet": "0", "part-000000-000000000000000_000001.parquet": "9"}


@pytest.mark.parametrize("extension", ["/../../escaped.jsonl", "../x", "a/b", "x\0y", "\\..\\x"])
def test_a_formats_own_ending_cannot_lead_out_of_the_output(tmp_path: Path, extension: str) -> None:
    folder = RunDir(str(tmp_path / "out"))
    folder.open()
    try:
        job = make_job(folder, 1, "one\n")
        job.files[0] = dataclasses.replace(job.files[0], extension=extension)
        with pytest.raises(RunConflict, match="is no name of a file in an output"):
            commit_group([job], folder.output, folder.quarantine, folder.log)
        assert not list(folder.log.read())
        committer = Committer(folder.output, folder.quarantine, folder.log, lambda: None)
        committer.submit(job)
        committer.close()
        assert "would lie elsewhere" in committer.results.get().error
    finally:
        folder.close()
    assert {*tmp_path.iterdir()} <= {tmp_path / "out", run_dir_path(tmp_path / "out")}
    assert data_names(tmp_path / "out") == []


def test_an_interrupt_waits_until_what_was_submitted_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller then removes what is not in the log; files that are being committed must not be among that."""
    folder = RunDir(str(tmp_path / "out"))
    folder.open()
    linked, go_on = threading.Event(), threading.Event()
    sync = commit_module.files.sync_folder

    def slow(path: Any) -> None:
        linked.set()
        go_on.wait(20)
        sync(path)

    monkeypatch.setattr(commit_module.files, "sync_folder", slow)
    committer = Committer(folder.output, folder.quarantine, folder.log, lambda: None)
    committer.submit(make_job(folder, 1, "1\n"))
    assert linked.wait(20)
    join, n_joins = committer._thread.join, [0]

    def interrupted() -> None:
        n_joins[0] += 1
        if n_joins[0] < 3:
            raise KeyboardInterrupt
        go_on.set()
        join()

    monkeypatch.setattr(committer._thread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        committer.close()
    assert n_joins == [3]
    folder.tidy()
    assert folder.recover().ledger.records.n == 1
    folder.close()


def test_an_unforeseen_error_is_reported_instead_of_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunDir(str(tmp_path / "out"))
    folder.open()

    def broken(*_: Any) -> None:
        raise ValueError("no such upload")

    monkeypatch.setattr(commit_module, "commit_group", broken)
    committer = Committer(folder.output, folder.quarantine, folder.log, lambda: None)
    committer.submit(make_job(folder, 1, "1\n"))
    committer.close()
    assert committer.results.get().error == f"cannot commit to {folder.output}: ValueError: no such upload"
    folder.close()
