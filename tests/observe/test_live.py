"""The state of a run from its database: while it runs, after it stopped, and when the database is damaged."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tamis.backends.local import InProcessExecutor
from tamis.cli.main import app
from tamis.cli.top import lines_of
from tamis.engine.rundb import _SCHEMA
from tamis.observe.live import read_live
from tamis.pipeline import Pipeline
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "plan.json").write_text(json.dumps({"name": "clean"}))
    with sqlite3.connect(tmp_path / "run.sqlite") as db:
        db.executescript(_SCHEMA)
        for i in range(20):
            used = 100_000_000 + i * 1_000_000
            row = (1000.0 + i, used, 500_000_000, i * 10, i * 8, i, i, i * 5_000_000, (19 - i) * 5_000_000 + 50_000_000)
            db.execute("INSERT INTO samples VALUES (?,?,?,?,?,?,?,?,?,?,?)", (*row, 0, json.dumps({"1": 7, "2": 8})))
        db.execute("INSERT INTO units VALUES (1018, 2, 5, 100, 32000000, 900, 64000000, 1000, 0.25, 0.2)")
        db.execute("INSERT INTO events VALUES (1019, 'split', ?)", (json.dumps({"text": "cut in two"}),))
    db.close()
    return tmp_path


def test_a_running_run(folder: Path) -> None:
    live = read_live(folder, now=1020.0)
    assert (live.status, live.name, live.documents, live.written) == ("running", "clean", 190, 152)
    assert (live.used_bytes, live.peak_bytes, live.seconds) == (119_000_000, 119_000_000, 19.0)
    assert live.bytes_per_s == pytest.approx(5_000_000)
    assert live.eta_s == pytest.approx(10.0)
    assert live.workers == {"1": 7, "2": 8}
    assert live.units == [(2, 32_000_000, 64_000_000, 0.25)]
    shown = "\n".join(lines_of(live))
    for piece in (
        "clean: running, 0:19",
        "119 MB of 500 MB (24%)",
        "5 MB/s, 0:10 left",
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
    assert read_live(folder).status.startswith("run.sqlite cannot be read")
    (folder / "run.sqlite").unlink()
    assert read_live(folder).status == "no samples yet"
    assert lines_of(read_live(folder))


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
