"""Outputs that cannot be written, are full, belong to somebody else, are in use, or are finished already."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tamis.errors import DiskFullError, RunConflict, TamisError
from tests.faults.fault_harness import (
    assert_conserved,
    content_hash,
    documents,
    env,
    execute,
    lines_of,
    manifest,
    target,
    write_lines,
)
from tests.faults.fault_stages import AddLength, DropOdd, Slow
from tests.support.run_dirs import data_names, run_dir_path

N = 2000


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_lines(tmp_path / "in" / "a.jsonl", documents(N))
    return tmp_path / "in"


def test_output_that_cannot_be_created(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    for output in (tmp_path / "file", tmp_path / "file" / "out"):
        with pytest.raises(RunConflict, match="file"):
            execute(source, output)
    assert (tmp_path / "file").read_bytes() == b"mine"


def test_output_without_permission(source: Path, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere; this test needs an ordinary user")
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    for output in (locked, locked / "out"):
        with pytest.raises(RunConflict, match=r"cannot write to .*Permission denied"):
            execute(source, output)


# -- disk full --------------------------------------------------------------------------------------------------------
@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a tmpfs of 1.5 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1500k", "tmpfs", str(disk)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {done.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


@pytest.mark.parametrize("blocksize", ["64KiB", None])
def test_disk_full_and_then_space_returns(small_disk: Path, tmp_path: Path, blocksize: str | None) -> None:
    lines = documents(20_000)
    write_lines(tmp_path / "in" / "a.jsonl", lines)
    with pytest.raises(DiskFullError, match="make room and run the same command again") as full:
        execute(tmp_path / "in", small_disk / "out", [AddLength()], blocksize=blocksize)
    assert full.value.exit_code == 8
    assert sum(f.stat().st_blocks * 512 for f in small_disk.rglob("*") if f.is_file()) > 100_000, (
        "the disk was not filled"
    )
    kept = lines_of(small_disk / "out")
    assert len(kept) == len(set(kept)) < 20_000
    assert not (run_dir_path(small_disk / "out") / "manifest.json").exists()
    assert list((run_dir_path(small_disk / "out") / "staged").iterdir()) == []
    # The last block goes too: then not even the run directory can be written, and that is said, not shown as a
    # traceback.
    with contextlib.suppress(OSError), open(run_dir_path(small_disk / "out") / "filler", "wb") as file:
        while True:
            file.write(bytes(1000))
            file.flush()
    with pytest.raises(DiskFullError, match=r"No space left.* are free in .*make room and run the same command again"):
        execute(tmp_path / "in", small_disk / "out", [AddLength()], blocksize=blocksize)
    assert lines_of(small_disk / "out") == kept
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    result = execute(tmp_path / "in", small_disk / "out", [AddLength()], blocksize=blocksize)
    assert_conserved(result)
    assert (result.status, result.exit_code) == ("finished", 0)
    execute(tmp_path / "in", tmp_path / "calm", [AddLength()], local=False)
    assert sorted(lines_of(small_disk / "out")) == sorted(lines_of(tmp_path / "calm"))
    assert content_hash(small_disk / "out") == content_hash(tmp_path / "calm")


# -- somebody else's data ---------------------------------------------------------------------------------------------
def test_foreign_data_is_never_touched(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "part-000000-000000000000000.jsonl").write_bytes(b"precious")
    for fresh in (False, True):
        with pytest.raises(RunConflict, match="did not write"):
            execute(source, out, local=False, settings={"fresh": fresh})
    assert [p.name for p in out.iterdir()] == ["part-000000-000000000000000.jsonl"]
    assert (out / "part-000000-000000000000000.jsonl").read_bytes() == b"precious"


def test_a_foreign_file_that_takes_the_name_of_an_output_is_not_replaced(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "part-000000-000000000000000.jsonl").write_bytes(b"precious")
    with pytest.raises(TamisError):
        execute(source, out, local=False, mode="append")
    assert (out / "part-000000-000000000000000.jsonl").read_bytes() == b"precious"


def test_fresh_removes_what_tamis_wrote_and_nothing_else(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = execute(source, out, local=False, blocksize="64KiB")
    assert len(first.files) > 1
    (out / "notes.txt").write_bytes(b"mine")
    (out / "folder").mkdir()
    (out / "folder" / "part-000000-000000000000000.jsonl").write_bytes(b"mine too")
    result = execute(source, out, [DropOdd()], local=False, settings={"fresh": True})
    assert result.status == "finished"
    assert len(result.files) == 1
    assert (out / "notes.txt").read_bytes() == b"mine"
    assert (out / "folder" / "part-000000-000000000000000.jsonl").read_bytes() == b"mine too"
    assert len((out / result.files[0].name).read_bytes().splitlines()) == N // 2
    assert data_names(out) == ["folder", "notes.txt", "part-000000-000000000000000.jsonl"]


def test_a_committed_file_that_somebody_changed_is_noticed(source: Path, tmp_path: Path) -> None:
    result = execute(source, tmp_path / "out", local=False)
    path = tmp_path / "out" / result.files[0].name
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(RunConflict, match="was committed with"):
        execute(source, tmp_path / "out", local=False)
    path.unlink()
    with pytest.raises(RunConflict, match="is gone"):
        execute(source, tmp_path / "out", local=False)


# -- two runs, and one after the other --------------------------------------------------------------------------------
def test_two_runs_on_one_output(source: Path, tmp_path: Path) -> None:
    """The second is refused while the first works, and the first does not notice."""
    command = target(source, tmp_path / "out", "512MB", "1", "64KiB", 0.01)
    first = subprocess.Popen(command, env=env(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        lock = run_dir_path(tmp_path / "out") / "commit.log"
        ticker = threading.Event()
        while not lock.exists() and first.poll() is None:
            ticker.wait(0.01)
        assert first.poll() is None, first.communicate()[0]
        first.send_signal(signal.SIGSTOP)
        second = subprocess.run(command, env=env(), capture_output=True, text=True, timeout=60)
        first.send_signal(signal.SIGCONT)
        assert second.returncode != 0
        assert "RunConflict: another run is writing to" in second.stderr
        text, _ = first.communicate(timeout=60)
        assert first.returncode == 0, text
    finally:
        if first.poll() is None:
            first.kill()
            first.wait()
    assert len(lines_of(tmp_path / "out")) == N // 2


def test_a_finished_output_run_again_does_nothing(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    execute(source, out, [AddLength()])
    before = {p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in out.iterdir() if p.is_file()}
    for settings in ({}, {"memory": "1GB", "workers": 1}):
        again = execute(source, out, [AddLength()], blocksize="64KiB", settings=settings)
        assert (again.status, again.exit_code, again.ledger.written.n) == ("already", 0, N)
    assert {p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in out.iterdir() if p.is_file()} == before
    run_id = manifest(out)["run_id"]
    fresh = execute(source, out, [AddLength()], settings={"fresh": True})
    assert (fresh.status, fresh.ledger.written.n) == ("finished", N)
    assert manifest(out)["run_id"] != run_id


def test_changed_inputs_and_stages_are_refused(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    execute(source, out, [DropOdd(), Slow(0.0)], local=False)
    before = content_hash(out)
    with pytest.raises(RunConflict, match="remainder 1 -> 0"):
        execute(source, out, [DropOdd(remainder=0), Slow(0.0)], local=False)
    with pytest.raises(RunConflict, match="stages were"):
        execute(source, out, [DropOdd()], local=False)
    with pytest.raises(RunConflict, match="fields None -> "):
        execute(source, out, [DropOdd(), Slow(0.0)], local=False, fields=["id", "text"])
    with pytest.raises(RunConflict, match=r"max_record \d+ -> "):
        execute(source, out, [DropOdd(), Slow(0.0)], local=False, settings={"max_record": "1MB"})
    with open(source / "a.jsonl", "ab") as file:
        file.write(b'{"id":-2,"text":"new"}\n')
    with pytest.raises(RunConflict, match=r"a\.jsonl had \d+ bytes and has"):
        execute(source, out, [DropOdd(), Slow(0.0)], local=False)
    write_lines(source / "b.jsonl", documents(1))
    with pytest.raises(RunConflict, match="is new"):
        execute(source, out, [DropOdd(), Slow(0.0)], local=False)
    assert content_hash(out) == before
    fresh = execute(source, out, [DropOdd(), Slow(0.0)], local=False, settings={"fresh": True})
    assert fresh.ledger.records.n == N + 2


def test_changed_source_of_a_stage_is_refused(source: Path, tmp_path: Path) -> None:
    module = tmp_path / "mine.py"
    code = (
        "from tests.faults.fault_stages import TextStage\n\n\nclass Mine(TextStage):\n    name = 'mine'\n\n    def "
        "process(self, task):\n        return task{}\n"
    )
    script = (
        "import sys\nfrom mine import Mine\nfrom tests.faults.fault_harness import execute\nfrom pathlib import Path\n"
        "print(execute(Path(sys.argv[1]), Path(sys.argv[2]), [Mine()], local=False).status)\n"
    )

    def run() -> subprocess.CompletedProcess[str]:
        where = env(PYTHONPATH=os.pathsep.join((env()["PYTHONPATH"], str(tmp_path))), PYTHONDONTWRITEBYTECODE="1")
        return subprocess.run(
            [sys.executable, "-c", script, str(source), str(tmp_path / "out")],
            env=where,
            capture_output=True,
            text=True,
            timeout=60,
        )

    module.write_text(code.format(""))
    assert run().stdout == "finished\n"
    assert run().stdout == "already\n"
    module.write_text(code.format("  # changed"))
    changed = run()
    assert "RunConflict" in changed.stderr
    assert "mine.Mine: its source code changed" in changed.stderr
