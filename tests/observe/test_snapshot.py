"""What is read of a run, whole, half-written, old or damaged."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tamis.observe.snapshot import SnapshotLimits, read_object, read_snapshot
from tests.support.made_run import BUDGET, STAGES, make_run


def test_a_live_run(tmp_path: Path) -> None:
    run = read_snapshot(make_run(tmp_path, seconds=60, n_gpus=1))
    assert (run.status, run.live, run.name, run.problems) == ("running", True, "web corpus, English", [])
    assert run.budget_bytes == BUDGET
    assert [p.stage for p in run.stages] == list(STAGES)
    assert [p.role for p in run.processes] == ["supervisor", "server", "worker", "worker", "worker", "worker"]
    assert len(run.cells) == 1000
    assert run.seconds == pytest.approx(60, abs=0.01)
    assert run.rate("documents") == pytest.approx(9_000_000 * 0.62 / 60, rel=0.01)
    assert run.settings[0]["name"] == "memory"


def test_a_finished_run(tmp_path: Path) -> None:
    run = read_snapshot(make_run(tmp_path, seconds=60, finished=True, ended_at=1_700_000_000.0))
    assert (run.status, run.exit_code, run.good, run.seconds, run.peak_bytes) == (
        "finished",
        0,
        True,
        60,
        1_584_000_000,
    )
    assert run.drops[0].reason == "not English"


def test_a_run_that_is_silent_was_stopped(tmp_path: Path) -> None:
    make_run(tmp_path, seconds=30, ended_at=1_700_000_000.0)
    assert read_snapshot(tmp_path, now=1_700_000_005.0).status == "running"
    assert read_snapshot(tmp_path, now=1_700_000_100.0).status == "stopped"


def test_only_the_last_seconds(tmp_path: Path) -> None:
    run = read_snapshot(make_run(tmp_path, seconds=200), SnapshotLimits(recent_s=60.0))
    assert run.totals[0].at >= run.began_at + 139
    assert run.seconds == pytest.approx(200, abs=0.01)
    assert min(p.at for p in run.stage_moments) >= run.began_at + 139


def test_an_earlier_attempt_is_not_stretched_over_the_gap(tmp_path: Path) -> None:
    now = time.time()
    make_run(tmp_path, seconds=20, ended_at=now - 90_000)
    make_run(tmp_path, seconds=20, ended_at=now)
    run = read_snapshot(tmp_path)
    assert run.began_at == pytest.approx(now - 20, abs=0.1)
    assert all(t.at >= now - 21 for t in run.totals)


def test_nothing_there(tmp_path: Path) -> None:
    run = read_snapshot(tmp_path / "nothing")
    assert (run.status, run.problems, run.last) == ("starting", [], None)


@pytest.mark.parametrize("name", ["manifest.json", "settings.json", "prediction.json", "run.sqlite"])
@pytest.mark.parametrize(
    "content", [b"{" * 100, b"[" + b"1," * 300 + b"1]", b"\xff" * 5000, b"SQLite format 3\x00" + b"\x07" * 5000]
)
def test_damage_is_a_sentence(tmp_path: Path, name: str, content: bytes) -> None:
    make_run(tmp_path, seconds=10)
    (tmp_path / name).write_bytes(content)
    run = read_snapshot(tmp_path)
    assert len(run.problems) == 1
    assert name in run.problems[0] or "run database" in run.problems[0]


def test_objects_are_read_from_plain_files_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problems: list[str] = []
    os.mkfifo(tmp_path / "pipe.json")
    assert read_object(tmp_path / "pipe.json", problems) == {}
    (tmp_path / "deep.json").write_text("[" * 100_000)
    assert read_object(tmp_path / "deep.json", problems) == {}
    monkeypatch.setattr("tamis.observe.snapshot.MAX_FILE_BYTES", 10)
    (tmp_path / "large.json").write_text(json.dumps({"a": "x" * 100}))
    assert read_object(tmp_path / "large.json", problems) == {}
    assert [p.split()[0] for p in problems] == ["pipe.json", "deep.json", "large.json"]
