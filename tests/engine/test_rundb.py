"""The run database: records what happens, and never hurts a run."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from tamis.engine.rundb import RunDatabase


def test_events_units_and_samples_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    db = RunDatabase(str(path))
    db.event("died", {"worker": 3, "how": "signal SIGKILL"})
    db.event("unit", {"worker": 3, "unit": 9, "n_records": 10, "seconds": 0.5})
    db.event("commit", {"root": 1})
    state = dict.fromkeys(
        (
            "used_bytes",
            "budget_bytes",
            "documents",
            "written",
            "dropped",
            "quarantined",
            "read_bytes",
            "left_bytes",
            "level",
        ),
        1,
    )
    db.sample(state, {3: 77})
    db.sample(state, {3: 78})  # within a second: left out
    db.close()
    with sqlite3.connect(path) as read:
        assert [(k, json.loads(d)) for k, d in read.execute("SELECT kind, data FROM events")] == [
            ("died", {"worker": 3, "how": "signal SIGKILL"})
        ]
        assert read.execute("SELECT worker, unit, n_records, seconds FROM units").fetchall() == [(3, 9, 10, 0.5)]
        assert read.execute("SELECT used_bytes, workers FROM samples").fetchall() == [(1, '{"3": 77}')]
    read.close()


def test_a_database_that_cannot_be_opened_only_stops_recording(tmp_path: Path) -> None:
    db = RunDatabase(str(tmp_path / "no" / "such" / "run.sqlite"))
    db.event("died", {"worker": 1})
    db.close()
    assert "unable to open" in db.error


def test_a_second_run_adds_to_the_first(tmp_path: Path) -> None:
    for n in range(2):
        db = RunDatabase(str(tmp_path / "run.sqlite"))
        db.event("note", {"n": n})
        db.close()
    read = sqlite3.connect(tmp_path / "run.sqlite")
    assert read.execute("SELECT count(*) FROM events").fetchone() == (2,)
    read.close()
