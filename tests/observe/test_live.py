"""The state of a run from its database: while it runs, after it stopped, and when the database is damaged."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import time
from pathlib import Path

import pytest

from tamis.backends.local import InProcessExecutor
from tamis.cli.main import app
from tamis.cli.runs import top
from tamis.cli.runs.top import _read_state, lines_of
from tamis.dedup.exact.workflow import RemoveExactDuplicates
from tamis.engine.monitor.database import _SCHEMA, RunDatabase
from tamis.engine.run_record import RunRecorder
from tamis.engine.schema import RunFacts
from tamis.files import locked
from tamis.memory.sampler import Mark
from tamis.observe.live import LiveRun, read_live
from tamis.observe.points import Total
from tamis.pipeline import Pipeline
from tamis.pipeline.pass_progress import planned_pass
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter
from tests.support.cli_runner import CliRunner
from tests.support.made_run import make_run
from tests.support.run_dirs import run_dir_path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "plan.json").write_text(json.dumps({"name": "clean"}))
    with sqlite3.connect(tmp_path / "run.sqlite") as db:
        db.executescript(_SCHEMA)
        db.execute("INSERT INTO about VALUES ('name', ?)", (json.dumps("clean"),))
        for i in range(20):
            used = 100_000_000 + i * 1_000_000
            row = (1000.0 + i, used, 500_000_000, i * 10, i * 8, i, i, i * 5_000_000, (19 - i) * 5_000_000 + 50_000_000)
            db.execute(
                "INSERT INTO samples VALUES (?,?,?,?,?,?,?,?,?,?,?" + ",NULL" * 18 + ")",
                (*row, 0, json.dumps({"1": 7, "2": 8})),
            )
        db.execute("INSERT INTO units VALUES (1018, 2, 5, 100, 32000000, 900, 64000000, 1000, 0.25, 0.2)")
        db.execute("INSERT INTO events VALUES (1019, 'split', ?)", (json.dumps({"text": "cut in two"}),))
    db.close()
    return tmp_path


def test_a_running_run(folder: Path) -> None:
    live = read_live(folder, now=1020.0)
    assert (live.status, live.name, live.total.documents, live.total.written) == ("running", "clean", 190, 152)
    assert (live.total.used_bytes, live.total.peak_bytes, live.seconds) == (119_000_000, 119_000_000, 19.0)
    assert live.bytes_per_s == pytest.approx(5_000_000)
    assert live.eta_s == pytest.approx(10.0)
    assert live.total.workers == {"1": 7, "2": 8}
    assert live.units == [(2, 32_000_000, 64_000_000, 0.25)]
    shown = "\n".join(lines_of(live))
    for piece in (
        "119 MB of 500 MB (24%)",
        "running, 0:19, 0:10 left",
        "5 MB/s",
        "kept 152",
        "split  cut in two",
    ):
        assert piece in shown


def test_a_run_that_stopped_or_finished(folder: Path) -> None:
    assert read_live(folder, now=2000.0).status == "stopped"
    (folder / "manifest.json").write_text("{}")
    assert read_live(folder, now=1020.0).status == "finished"


def test_a_damaged_database_is_a_sentence(folder: Path) -> None:
    (folder / "run.sqlite").write_bytes(b"not a database at all" * 100)
    assert "run.sqlite cannot be read (file is not a database)" in read_live(folder).status
    assert lines_of(read_live(folder))
    (folder / "run.sqlite").unlink()
    assert read_live(folder).status == "no samples yet"
    assert lines_of(read_live(folder))


def test_processes_stages_machine_and_gpus(tmp_path: Path) -> None:
    db = RunDatabase(str(tmp_path / "run.sqlite"))
    db.about(RunFacts(name="clean", began_at=1000.0, duplicate_stages=["unique"]))
    for i in range(21):
        at = 1000.0 + i
        facts = {
            "psi_some": 1.5,
            "psi_full": 0.25,
            "disk_free_bytes": 7_000_000_000,
            "scratch_bytes": 5_000_000,
            "queue_bytes": 3_000_000,
        }
        machine = {
            "machine_used_bytes": 8_000_000_000,
            "machine_total_bytes": 16_000_000_000,
            "cgroup_limit_bytes": 2_000_000_000,
        }
        totals = {
            "used_bytes": 1_000_000,
            "peak_bytes": 2_000_000,
            "budget_bytes": 10_000_000,
            "cpu_s": 61.0,
            "duplicates": 4,
            "dropped": 9,
        }
        db.sample({**totals, **facts, **machine}, {1: 400_000}, at=at)
        db.put(
            "processes",
            at=at,
            pid=10,
            role="supervisor",
            pss_bytes=30_000_000,
            anon_bytes=20_000_000,
            peak_bytes=40_000_000,
            cpu_s=1.0,
        )
        db.put("processes", at=at, pid=11, role="worker", worker=1, segment=0, pss_bytes=400_000, cpu_s=60.0)
        db.put(
            "stages",
            at=at,
            stage="rules\x1b[2J",
            position=0,
            n_in=100 * i,
            n_out=90 * i,
            n_dropped=10 * i,
            in_bytes=2_000_000 * i,
            peak_bytes=50_000_000,
        )
        db.put(
            "gpus",
            at=at,
            gpu=0,
            name="H200",
            used_bytes=4_000_000_000,
            total_bytes=8_000_000_000,
            ours_bytes=1_000_000_000,
            busy=0.75,
            temperature_c=41.0,
        )
    db.alert("memory", "critical", "96 % of the budget", {})
    db.close()
    live = read_live(tmp_path, now=1021.0)
    assert (live.status, live.seconds, live.total.peak_bytes) == ("running", 20.0, 2_000_000)
    assert [(p.role, p.worker, p.pid) for p in live.processes] == [("supervisor", 0, 10), ("worker", 1, 11)]
    stage = live.stages[0]
    assert (stage.documents_per_s, stage.bytes_per_s, stage.point.n_dropped) == (100.0, 2_000_000.0, 200)
    narrow = lines_of(live)
    (head,) = [line for line in narrow if line.startswith("stage")]
    assert head.split() == ["stage", "in", "out", "dropped", "docs/s", "MB/s", "peak"]
    assert len({len(line) for line in narrow[narrow.index(head) : narrow.index(head) + 2]}) == 1
    assert [line for line in narrow if len(line) > 80] == []
    shown = "\n".join(lines_of(live, 120))
    for piece in (
        "supervisor      10      30 MB     20 MB      40 MB    0:01",
        "worker 1        11     400 kB",
        "machine  memory 8 GB of 16 GB, group 0 B of 2 GB, waiting for memory 1.5 % (all 0.25 %), disk free 7 GB",
        "run      CPU 1:01, scratch 5 MB, queue 3 MB",
        "dropped 9, of which 4 duplicates",
        "gpu 0    4 GB of 8 GB (this run 1 GB), busy 75%, 41 C, H200",
        "critical  96 % of the budget",
    ):
        assert piece in shown
    result = CliRunner().invoke(app, ["top", str(tmp_path), "--once"])
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "clean: stopped, 0:20")  # the run directory itself
    assert json.dumps(live.to_dict())


def test_numbers_that_no_run_has(tmp_path: Path) -> None:
    db = RunDatabase(str(tmp_path / "run.sqlite"))
    db.sample({"used_bytes": -5, "budget_bytes": 0, "level": -3, "left_bytes": -1}, {}, at=1e300)
    db.put("stages", at=1e300, stage="", n_in=-(1 << 60))
    db.put("events", at=1e300, kind="x", data="{}")
    db.close()
    assert lines_of(read_live(tmp_path))


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"text": "a"}\n' * 10)
    stages = [JsonlReader(str(tmp_path / "in")), JsonlWriter(str(tmp_path / "out"))]
    Pipeline("p", stages=stages).execute(InProcessExecutor(), memory="512MB")
    result = CliRunner().invoke(app, ["top", str(tmp_path / "out"), "--once"])
    assert (result.exit_code, "p: finished" in result.output) == (0, True)
    assert json.loads(CliRunner().invoke(app, ["top", str(tmp_path / "out"), "--json"]).output)["status"] == "finished"
    missing = CliRunner().invoke(app, ["top", str(tmp_path)])
    assert (missing.exit_code, "holds no run of Tamis" in missing.output) == (2, True)


def test_the_passes_of_a_deduplication(tmp_path: Path) -> None:
    """A pass that has ended is not the end of the workflow; the time left is that of all passes."""
    run_dir = run_dir_path(tmp_path / "out")
    keys = make_run(run_dir_path(run_dir / "dedup/keys-0"), seconds=1)
    (keys / "manifest.json").write_text("{}")
    recorder = RunRecorder(str(run_dir), "unique", Mark(), time.monotonic() - 30)
    recorder.plan([planned_pass(label) for label in ("keys-0", "decision-0", "removal")])
    with recorder:
        with recorder.doing("keys-0"):
            recorder._pass_began_s -= 20
        with recorder.doing("decision-0"):
            recorder.advance({"phase": "equal texts", "share": 0.5})
            recorder._write()
            said = CliRunner().invoke(app, ["top", str(tmp_path / "out"), "--once"])
            live = _read_state(run_dir, None)
    assert live.status == "running"
    assert [p.status for p in live.record.passes] == ["finished", "running", "waiting"]  # type: ignore[union-attr]
    # 20 s for a weight of 1.1: half of 0.2 in no time so far, and 0.6 at that pace.
    assert live.eta_s == pytest.approx(20 / 1.1 * 0.6, abs=0.2)
    lines = said.stdout.splitlines()
    assert lines[0].startswith("unique: running, 0:3")
    assert lines[1].startswith("  [x] reading documents, making keys ")
    assert lines[2].startswith(f"  [>] {'deciding which ones go':<50s}   50%")
    assert lines[3] == "  [ ] removing duplicates"
    assert _read_state(run_dir, None).status == "running"  # it was closed without an end a moment ago
    record = json.loads((run_dir / "run.json").read_text())
    (run_dir / "run.json").write_text(json.dumps({**record, "updated_at": time.time() - 60}))
    assert _read_state(run_dir, None).status == "stopped"
    with locked(run_dir / "dedup.lock", "busy"):
        assert _read_state(run_dir, None).status == "running"


def test_a_search_for_duplicates_that_ended(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n{"text": "a"}\n')
    out = str(tmp_path / "out")
    search = RemoveExactDuplicates(input_path=str(tmp_path / "in.jsonl"), output_path=out, perform_removal=False)
    search.run(InProcessExecutor(), progress=False)
    assert _read_state(run_dir_path(tmp_path / "out"), None).status == "finished"


def test_a_run_that_stands_still_is_not_stopped_while_it_is_held(tmp_path: Path) -> None:
    run_dir = make_run(run_dir_path(tmp_path / "out"), seconds=1, ended_at=1000.0)
    assert _read_state(run_dir, None).status == "stopped"
    with locked(run_dir / "lock", "busy"):
        assert _read_state(run_dir, None).status == "running"


@pytest.mark.parametrize("status", ["finished", "stopped"])
def test_watching_ends_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str) -> None:
    make_run(run_dir_path(tmp_path / "out"), seconds=1)
    states = iter([LiveRun(status=s) for s in ("no samples yet", "running", status)])
    monkeypatch.setattr(top, "_read_state", lambda folder, scratch: next(states))
    monkeypatch.setattr(top.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(top.sys, "stdout", Terminal())
    top.top(str(tmp_path / "out"))
    assert next(states, None) is None


def test_a_run_of_another_machine_may_be_slow(tmp_path: Path) -> None:
    """Its locks are not seen here, and its clock may go wrong: what looks stopped is watched on, for an hour."""
    here, now = os.uname().nodename, time.time()
    assert not top._has_ended(LiveRun(Total(at=now - 60), status="stopped", host="elsewhere"), is_far=False)
    assert not top._has_ended(LiveRun(Total(at=now - 60), status="running", host=here), is_far=False)
    assert top._has_ended(LiveRun(Total(at=now - 60), status="stopped", host=here), is_far=False)
    assert top._has_ended(LiveRun(Total(at=now - 4000), status="stopped", host="elsewhere"), is_far=False)
    assert top._has_ended(
        LiveRun(Total(at=now - 60), status="stopped", host="elsewhere"), is_far=True
    )  # nothing comes any more
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n')
    stages = [JsonlReader(str(tmp_path / "in.jsonl")), JsonlWriter(str(tmp_path / "out"))]
    Pipeline("p", stages=stages).execute(InProcessExecutor(), memory="512MB")
    assert read_live(run_dir_path(tmp_path / "out")).host == here


def test_a_deduplication_that_continues_is_at_work_before_its_pass_is(tmp_path: Path) -> None:
    run_dir = run_dir_path(tmp_path / "out")
    make_run(run_dir_path(run_dir / "dedup/keys-0"), seconds=1, ended_at=1000.0)
    with locked(run_dir / "dedup.lock", "busy"):
        assert _read_state(run_dir, None).status == "running"
    assert _read_state(run_dir, None).status == "stopped"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True
