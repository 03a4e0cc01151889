"""The monitor: a real run leaves its series, the watch is heard, and nothing in here can end a run."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tamis.backends.local import InProcessExecutor, LocalExecutor
from tamis.engine.ledger import Ledger
from tamis.engine.messages import Done
from tamis.engine.monitor import monitor as module
from tamis.engine.monitor.database import RunDatabase
from tamis.engine.monitor.monitor import Monitor, MonitoredRun
from tamis.engine.schema import RunFacts
from tamis.engine.supervisor.actions import CommitPartition, Committed
from tamis.engine.supervisor.cursor import Cursor
from tamis.engine.supervisor.state import Config
from tamis.engine.supervisor.supervisor import Supervisor
from tamis.engine.units import Piece, PieceKind
from tamis.formats.input_files.listing import FileList
from tamis.memory.gpu import GpuSample
from tamis.memory.predictor import Predictor
from tamis.memory.sampler import Mark
from tamis.observe.live import read_live
from tamis.observe.series import open_series
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter
from tamis.tasks import DocumentBatch
from tests.support.run_dirs import run_dir_path

MB = 1_000_000


class KeepHalf(ProcessingStage[DocumentBatch, DocumentBatch]):
    name = "keep_half"

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        import numpy as np

        return batch.filter(np.arange(batch.num_items) % 2 == 0)


class Idle:
    """Workers without processes."""

    is_remote = False

    def start(self, worker: int, segment: int, environment: Any = None) -> None: ...

    def assign(self, worker: int, message: dict[str, Any], cap_bytes: int, ceiling_bytes: int) -> None: ...

    def send(self, worker: int, message: dict[str, Any]) -> None: ...

    def kill(self, worker: int) -> None: ...

    def poll(self, timeout_s: float) -> list[Any]:
        return []

    def pids(self) -> dict[int, int]:
        return {}

    def measure(self) -> dict[int, tuple[int, dict[int, int]]]:
        return {0: (0, {})}


class TwoGpus:
    def sample(self) -> list[GpuSample]:
        return [GpuSample(0, "A", 5, 10, 0.5, 40.0, {1: 3}), GpuSample(1, "B", 6, 10, None, None, {})]

    def close(self) -> None: ...


def supervisor(sizes: Sequence[int]) -> Supervisor:
    files = FileList()
    for i, size in enumerate(sizes):
        files.append(f"in{i}", size, 0)
    config = Config(500 * MB, 300 * MB, 20 * MB, 2)
    return Supervisor(config, Cursor(files, [PieceKind.BYTES] * len(sizes)), [Predictor(32 << 20)])


STATE = {
    "used_bytes": 100 * MB,
    "peak_bytes": 400 * MB,
    "budget_bytes": 500 * MB,
    "documents": 10,
    "written": 8,
    "dropped": 1,
    "quarantined": 1,
    "read_bytes": 5,
    "left_bytes": 7,
    "level": 0,
    "seconds": 3.0,
}


def made(tmp_path: Path, mark: Mark | None = None, **parts: Any) -> tuple[Monitor, RunDatabase]:
    db = RunDatabase(str(tmp_path / "run.sqlite"))
    place = MonitoredRun(
        ["rules"],
        [100, 100],
        [PieceKind.BYTES, PieceKind.BYTES],
        str(tmp_path),
        (str(tmp_path),),
        mark=mark or Mark(),
        facts=RunFacts(name="n"),
    )
    return Monitor(db, place, Ledger(), **parts), db


class Sleeping(Idle):
    """Three processes that wait for their standard input, reported as workers."""

    def __init__(self) -> None:
        self.processes = [subprocess.Popen(["cat"], stdin=subprocess.PIPE) for _ in range(3)]

    def pids(self) -> dict[int, int]:
        return {number: process.pid for number, process in enumerate(self.processes, 1)}

    def close(self) -> None:
        for process in self.processes:
            process.communicate()


def test_a_reader_sees_all_processes_of_a_sample_or_none(tmp_path: Path) -> None:
    workers = Sleeping()
    try:
        monitor, db = made(tmp_path)
        db.flush()
        db._flushed_s = float("-inf")  # a second later: the next row is due at once
        monitor.tick(STATE, supervisor([100]), workers)
        assert db._writer is not None
        db._writer.join()
        live = read_live(tmp_path)
        assert (live.total.n_processes, len(live.processes)) == (4, 4)
        assert [p.role for p in live.processes] == ["supervisor", "worker", "worker", "worker"]
        db.close()
    finally:
        workers.close()


def test_a_run_with_processes_leaves_every_series(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    line = json.dumps({"text": "word " * 50}) + "\n"
    (tmp_path / "in" / "a.jsonl").write_text(line * 8000)
    seen: list[Mapping[str, Any]] = []
    watch = lambda facts: seen.append(facts) or []  # noqa: E731
    stages = [JsonlReader(str(tmp_path / "in"), blocksize="500kB"), KeepHalf(), JsonlWriter(str(tmp_path / "out"))]
    result = Pipeline("clean", stages=stages).execute(LocalExecutor(watch=watch), memory="600MB", workers=2)
    manifest = json.loads((run_dir_path(tmp_path / "out") / "manifest.json").read_text())
    assert 20 * MB < result.peak_bytes == manifest["peak_bytes"] < 600 * MB
    assert result.caller_bytes == manifest["caller_bytes"] > 20 * MB  # this process: told, and not counted
    with open_series(run_dir_path(tmp_path / "out")) as series:
        assert series.about.stages == ["keep_half"]
        assert series.about.name == "clean"
        assert series.about.input_bytes == len(line) * 8000
        last, stage, processes = series.last(), series.stages()[0], series.processes()
        assert last is not None
        assert (last.documents, last.written, last.dropped) == (8000, 4000, 4000)
        assert last.supervisor_bytes > 0
        assert last.peak_bytes >= last.used_bytes
        assert last.cpu_s > 0
        assert last.machine_total_bytes > last.machine_used_bytes > 0
        assert last.disk_free_bytes > 0
        assert (stage.stage, stage.n_in, stage.n_out, stage.n_dropped) == ("keep_half", 8000, 4000, 4000)
        assert stage.in_bytes == 8000 * (len(line) - 1)
        assert stage.peak_bytes > 0
        assert stage.seconds > 0
        assert {"supervisor"} <= {p.role for p in processes} <= {"supervisor", "server", "worker"}
        assert sum(c.committed for c in series.cells()) == len(line) * 8000
        assert sum(c.waiting + c.running + c.quarantined for c in series.cells()) == 0
        assert [e for e in series.events() if e.kind == "monitor"] == []
    assert seen
    assert {
        "used_bytes",
        "budget_bytes",
        "stages",
        "gpus",
        "leaks",
        "seconds",
        "level",
        "progress_s",
        "workers",
    } <= set(seen[0])
    assert seen[0]["stages"]["keep_half"]["position"] == 0


def test_the_peak_since_the_last_sample_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = Mark()
    monitor, db = made(tmp_path, mark)
    s = supervisor([100, 100])
    monitor.begin(s)
    clock = 1000.0
    monkeypatch.setattr(module.time, "monotonic", lambda: clock)
    for used in (120 * MB, 310 * MB, 90 * MB):
        mark.note(used, 0)
    monitor.tick(STATE, s, Idle())
    mark.note(250 * MB, 0)
    monitor.tick(STATE, s, Idle())  # within the same second: nothing is written
    clock += 1.0
    monitor.tick(STATE, s, Idle())
    clock += 1.0
    monitor.tick({**STATE, "used_bytes": 50 * MB}, s, Idle())
    db.close()
    with open_series(tmp_path) as series:
        assert [t.peak_bytes for t in series.totals()] == [310 * MB, 250 * MB, 50 * MB]
        assert {p.at for p in series.processes()} == {t.at for t in series.totals()}  # one moment each


def test_commits_splits_and_quarantine_reach_the_map(tmp_path: Path) -> None:
    monitor, db = made(tmp_path)
    s = supervisor([100, 100])
    monitor.begin(s)
    ledger = Ledger()
    ledger.records.add(10, 1)
    ledger.quarantined.add(5, 1)
    piece = Piece(0, PieceKind.BYTES, "in0", 0, 100)
    monitor.committing(CommitPartition(1, piece, 0, [(0, 0, 100, True)], [], ledger.to_dict()))
    monitor.committed(Committed(1, [(0, 0, 100, True)], 0))
    monitor.split(s.queue.new_unit([Piece(1, PieceKind.BYTES, "in1", 50, 60)]))
    monitor.tick(STATE, s, Idle(), final=True)
    db.close()
    with open_series(tmp_path) as series:
        cells = series.cells()
        assert [(c.committed, c.quarantined, c.waiting) for c in cells] == [
            (50, 50, 0),
            (0, 0, 100),
        ]  # one of each file
        assert [c.cell for c in cells if c.split] == [1]


def test_gpus_are_recorded(tmp_path: Path) -> None:
    monitor, db = made(tmp_path, gpus=TwoGpus())
    monitor.tick(STATE, supervisor([1]), Idle())
    monitor.close()
    db.close()
    with open_series(tmp_path) as series:
        first, second = series.gpus()
        assert (first.name, first.used_bytes, first.busy, first.processes) == ("A", 5, 0.5, {"1": 3})
        assert (second.gpu, second.busy, second.temperature_c) == (1, None, None)


def test_what_the_watch_wants_is_done_and_what_it_raises_is_noted(tmp_path: Path) -> None:
    attached = []

    class Watch:
        def attach(self, record: Any) -> None:
            attached.append(record)

        def __call__(self, facts: Mapping[str, Any]) -> list[str]:
            if not attached[1:]:
                attached.append(facts)
                return ["pause:5", "nonsense"]
            raise ZeroDivisionError("no")

    monitor, db = made(tmp_path, watch=Watch())
    s = supervisor([100])
    actions = monitor.tick(STATE, s, Idle())
    assert [a.text for a in actions or []] == [
        "nothing new starts for 5 s",
        "unknown remedy 'nonsense': nothing is done",
    ]  # type: ignore[union-attr]
    monitor._sampled_s = float("-inf")
    assert monitor.tick(STATE, s, Idle()) == []
    attached[0]("memory", "warning", "full", {})
    db.close()
    with open_series(tmp_path) as series:
        assert [e.text for e in series.events()] == ["monitoring: the watch: ZeroDivisionError: no"]
        assert [a.text for a in series.alerts()] == ["full"]


def test_a_fault_of_the_monitor_is_noted_once_and_stops_nothing(tmp_path: Path) -> None:
    class Broken:
        def sample(self) -> Any:
            raise OSError("the driver is gone")

        def close(self) -> None: ...

    monitor, db = made(tmp_path, gpus=Broken())
    s = supervisor([100])
    for _ in range(3):
        monitor._sampled_s = monitor._detailed_s = float("-inf")
        assert monitor.tick(STATE, s, Idle()) is None
    monitor.done(Done(stages=[{"nonsense": 1}]))  # type: ignore[list-item]
    monitor.committing(CommitPartition(1, Piece(0, PieceKind.BYTES, "", 0, 1), 0, [], [], {}))
    db.close()
    with open_series(tmp_path) as series:
        assert [e.text for e in series.events()] == [
            "monitoring: tick: OSError: the driver is gone",
            "monitoring: done: AttributeError: 'dict' object has no attribute 'label'",
            "monitoring: committing: KeyError: 'records'",
        ]
    assert monitor.cpu_s > 0


def test_a_run_whose_database_cannot_be_written_finishes(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"text": "a"}\n' * 10)
    run_dir = run_dir_path(tmp_path / "out")
    run_dir.mkdir(parents=True)
    (run_dir / "run.sqlite").mkdir()  # nothing can be opened, renamed onto or written there
    stages = [JsonlReader(str(tmp_path / "in")), JsonlWriter(str(tmp_path / "out"))]
    result = Pipeline("p", stages=stages).execute(InProcessExecutor(), memory="512MB")
    assert (result.status, result.ledger.written.n) == ("finished", 10)


def test_a_run_whose_database_is_locked_finishes(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"text": "a"}\n' * 10)
    run_dir = run_dir_path(tmp_path / "out")
    run_dir.mkdir(parents=True)
    RunDatabase(str(run_dir / "run.sqlite")).close()
    holder = sqlite3.connect(run_dir / "run.sqlite", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    stages = [JsonlReader(str(tmp_path / "in")), JsonlWriter(str(tmp_path / "out"))]
    result = Pipeline("p", stages=stages).execute(InProcessExecutor(), memory="512MB")
    holder.close()
    assert (result.status, result.ledger.written.n) == ("finished", 10)
