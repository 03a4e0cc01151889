"""Folders that others made or can write to: nothing in them is taken for our own, run, overwritten or removed."""

from __future__ import annotations

import os
import pickle
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tamis import DocumentBatch, InProcessExecutor, Pipeline
from tamis.dedup.exact.workflow import RemoveExactDuplicates
from tamis.dedup.passes import Passes
from tamis.dedup.workflow import Workflow
from tamis.engine.run.output.directory import RunDir
from tamis.errors import RunConflict, TamisError
from tamis.observe.report import write_report
from tamis.stages.text.io.reader import DocumentReader
from tamis.stages.text.io.writer import JsonlWriter
from tests.faults.fault_harness import documents, execute, lines_of, write_lines
from tests.support.run_dirs import run_dir_path

NOBODY = 65534


class Evil:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return Path.touch, (self.trace,)


def of_nobody(path: Path, mode: int) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    os.chown(path, NOBODY, NOBODY)
    path.chmod(mode)
    return path


def open_to_all(path: Path, mode: int = 0o777) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o777)
    return path


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder that belongs to another user")
FOREIGN = [
    pytest.param(of_nobody, "belongs to (nobody|user 65534)", marks=needs_root, id="another user's"),
    pytest.param(open_to_all, "can be written by others", id="anybody's"),
]


def dedup(source: Path, output: Path, **settings: Any) -> Any:
    return RemoveExactDuplicates(str(output), str(source)).run(memory="400MB", workers=1, **settings)


def plain(source: Path, output: Path, **settings: Any) -> Any:
    return execute(source, output, local=False, settings=settings)


def initial(source: Path, output: Path, **settings: Any) -> Any:
    batch = DocumentBatch("in memory", pa.table({"text": ["a", "b"]}))
    pipeline = Pipeline("p", stages=[JsonlWriter(str(output))])
    return pipeline.execute(InProcessExecutor(), [batch], **settings)


@pytest.mark.parametrize(("run", "where"), [(plain, ""), (dedup, ""), (initial, ""), (plain, "staged")])
@pytest.mark.parametrize(("make", "why"), FOREIGN)
def test_a_run_directory_of_others_is_refused_and_nothing_in_it_is_used(
    tmp_path: Path, run: Callable[..., Any], make: Callable[..., Path], why: str, where: str
) -> None:
    source = write_lines(tmp_path / "in" / "a.jsonl", documents(10)).parent
    victim, trace = tmp_path / "victim", tmp_path / "trace"
    victim.write_text("precious")
    run_dir = run_dir_path(tmp_path / "out")
    run_dir.mkdir(parents=True)
    folder = make(run_dir / where, 0o777)
    for name in ("plan.json.tmp", "report.html.tmp", "commit.log", "u1.1.probe.shared"):
        (folder / name).symlink_to(victim)
    (folder / "u1.1.probe").write_bytes(pickle.dumps(Evil(trace)))
    before = sorted(os.listdir(folder))
    for settings in ({}, {"fresh": True}):
        with pytest.raises(RunConflict, match=why) as told:
            run(source, tmp_path / "out", **settings)
        assert f"{run_dir / where} " in str(told.value)
        assert "give another output" in str(told.value)
    assert victim.read_text() == "precious"
    assert not trace.exists()
    assert sorted(os.listdir(folder)) == before


def test_a_link_in_the_run_directory_is_refused(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in" / "a.jsonl", documents(10)).parent
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (run_dir_path(tmp_path / "out")).mkdir(parents=True)
    (run_dir_path(tmp_path / "out") / "run.sqlite").symlink_to(victim)
    with pytest.raises(RunConflict, match=r"/run.sqlite is a link"):
        plain(source, tmp_path / "out")
    assert victim.read_text() == "precious"


def test_a_report_never_writes_through_a_link(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in" / "a.jsonl", documents(10)).parent
    victim = tmp_path / "victim"
    victim.write_text("precious")
    run_dir = Path(plain(source, tmp_path / "out").run_dir)
    for name in ("report.html", "report.html.tmp", "report.json.tmp"):
        (run_dir / name).unlink(missing_ok=True)
        (run_dir / name).symlink_to(victim)
    assert "<html" in write_report(run_dir).read_text()
    assert victim.read_text() == "precious"


@needs_root
def test_an_output_folder_shared_with_a_group_is_fine(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in" / "a.jsonl", documents(10)).parent
    output = of_nobody(tmp_path / "out", 0o2775)
    os.chown(output, NOBODY, os.getegid())
    assert plain(source, output).exit_code == 0
    assert len(lines_of(output)) == 10
    info = (run_dir_path(output)).stat()
    assert (info.st_uid, info.st_mode & 0o022) == (0, 0)
    assert stat.S_IMODE((run_dir_path(output) / "staged").stat().st_mode) & 0o777 == 0o700


def test_a_run_directory_with_other_modes_continues_once_it_is_ours_alone(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in" / "a.jsonl", documents(10)).parent
    plain(source, tmp_path / "out")
    run_dir = run_dir_path(tmp_path / "out")
    (run_dir / "manifest.json").unlink()  # as if it had been interrupted
    for folder in ("staged", "quarantine", "verdicts", "scores", "rejected"):
        (run_dir / folder).chmod(0o755)
    assert plain(source, tmp_path / "out").ledger.written.n == 10  # umask 022
    for folder in (".", "staged"):
        (run_dir / folder).chmod(0o775)  # umask 002
    with pytest.raises(RunConflict, match=rf"mode 0775.*chmod -R go-w {run_dir}, then the same command"):
        plain(source, tmp_path / "out")
    (run_dir / "staged").chmod(0o755)
    run_dir.chmod(0o755)
    assert plain(source, tmp_path / "out").status == "already"


# -- scratch ----------------------------------------------------------------------------------------------------------
def old_name(output: Path, prefix: str) -> str:
    import hashlib

    return prefix + hashlib.blake2b(os.fsencode(output), digest_size=8).hexdigest()


@needs_root
@pytest.mark.parametrize(("run", "prefix"), [(plain, "tamis-"), (dedup, "tamis-dedup-")])
def test_a_scratch_folder_that_another_user_made_beforehand_is_left_alone(
    tmp_path: Path, run: Callable[..., Any], prefix: str
) -> None:
    source = write_lines(tmp_path / "in" / "a.jsonl", documents(10)).parent
    parent = tmp_path / "scratch"
    parent.mkdir()
    parent.chmod(0o1777)
    trap = of_nobody(parent / old_name(tmp_path / "out", prefix), 0o777)
    (trap / "inputs.json").write_text("[]")
    run(source, tmp_path / "out", scratch=str(parent))
    assert len(lines_of(tmp_path / "out")) == 10
    assert os.listdir(parent) == [trap.name]
    assert os.listdir(trap) == ["inputs.json"]


def test_what_a_killed_run_left_in_scratch_is_removed_if_it_is_ours(tmp_path: Path) -> None:
    parent = tmp_path / "scratch"
    other = tmp_path / "tamis-precious"
    other.mkdir()
    first = RunDir(str(tmp_path / "out"), str(parent))
    first.open()
    (Path(first.make_scratch()) / "f1.block").write_text("left")
    os.close(first._lock)  # killed here
    second = RunDir(str(tmp_path / "out"), str(parent))
    second.open()
    assert [Path(second.make_scratch())] == list(parent.iterdir())
    assert second.scratch != first.scratch
    # A run directory that was altered does not make us remove anything else.
    for path in (other, tmp_path):
        second.write_json("scratch.json", {"path": str(path)})
        second.make_scratch()
        assert other.is_dir()
    second.close()
    assert other.is_dir()


def workflow(output: Path, scratch: Path | None) -> Workflow:
    source = write_lines(output.parent / "in" / "a.jsonl", documents(1))
    passes = Passes(
        "x", source=lambda: DocumentReader(str(source)), keys=[], output=str(output), decision=None, writer=None
    )
    return Workflow(passes, {} if scratch is None else {"scratch": str(scratch)})


def test_a_deduplication_finds_its_folder_in_scratch_again(tmp_path: Path) -> None:
    def place(scratch: str | None, note: str = "") -> Path:
        made = workflow(tmp_path / "out", None if scratch is None else tmp_path / scratch)
        with made.output.locked(made, fresh=False):
            if note:
                (Path(made.work.path) / note).touch()
        return Path(made.work.path)

    first = place("a", "kept")
    assert first.parent == tmp_path / "a"
    assert stat.S_IMODE(first.stat().st_mode) == 0o700
    assert place("a") == place(None) == first  # goes on there
    assert os.listdir(first) == ["kept"]
    second = place("b")
    assert second.parent == tmp_path / "b"
    assert os.listdir(tmp_path / "a") == []
    made = workflow(tmp_path / "out", tmp_path / "b")
    with made.output.locked(made, fresh=True):
        assert list((tmp_path / "b").iterdir()) == [Path(made.work.path)] != [second]


# -- blocks -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["gz", "batch"])
def test_a_block_that_was_altered_ends_the_run_and_is_named(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of a stream go through scratch; batches between segments through staged files."""
    import gzip

    from tamis.engine.worker import blocks
    from tests.faults.fault_stages import AddLength, Shout

    data = b"".join(line + b"\n" for line in documents(4000))
    (tmp_path / "in").mkdir()
    name = "a.jsonl.gz" if kind == "gz" else "a.jsonl"
    (tmp_path / "in" / name).write_bytes(gzip.compress(data) if kind == "gz" else data)
    altered: list[str] = []
    real = blocks.BlockWriter.close

    def close(self: Any) -> None:
        path = (
            self._file.name if isinstance(self._file.name, str) else os.readlink(f"/proc/self/fd/{self._file.fileno()}")
        )
        real(self)
        if not altered:
            altered.append(path)
            body = Path(path).read_bytes()
            Path(path).write_bytes(body.replace(b"w1", b"W1"))

    monkeypatch.setattr(blocks.BlockWriter, "close", close)
    settings = {"mode": "batch"} if kind == "batch" else {}
    with pytest.raises(TamisError, match="is not what was written to it") as told:
        execute(
            tmp_path / "in",
            tmp_path / "out",
            [AddLength(), Shout()],
            local=False,
            blocksize="64KB",
            settings=settings,
        )
    assert altered[0] in str(told.value)
    assert not any(b"W1" in line for line in lines_of(tmp_path / "out"))


def test_keys_of_a_deduplication_that_were_altered_end_it_and_are_named(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in" / "a.jsonl", documents(300)).parent
    made = RemoveExactDuplicates(str(tmp_path / "out"), str(source))
    from tamis.dedup import pass_runner

    real, altered = pass_runner.run_task, []

    def run_task(folder: str, *rest: Any) -> Any:
        (path,) = Path(folder).glob("keys-0/*.arrow")
        if not altered:
            altered.append(path.read_bytes())
            body = bytearray(altered[0])
            body[len(body) // 2] ^= 1
            path.write_bytes(body)
        return real(folder, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pass_runner, "run_task", run_task)
        with pytest.raises(TamisError, match=r"keys-0/.*\.arrow is not what was written to it"):
            made.run(memory="400MB", workers=1)
    (path,) = (run_dir_path(tmp_path / "out") / "dedup").glob("keys-0/*.arrow")
    path.write_bytes(altered[0])  # restored: the run is resumed
    assert made.run(memory="400MB", workers=1).n_documents == 300
