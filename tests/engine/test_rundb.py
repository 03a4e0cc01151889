"""The run database: records what happens, and never hurts a run."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from tamis.engine.ledger import Ledger, StageBook
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


def drops(path: Path) -> list[tuple[object, ...]]:
    read = sqlite3.connect(path)
    rows = read.execute("SELECT stage, reason, documents, bytes, examples FROM drops ORDER BY stage, reason").fetchall()
    read.close()
    return rows


def test_what_was_dropped_is_kept_when_a_run_has_finished(tmp_path: Path) -> None:
    ledger = Ledger(stages=[StageBook("rules"), StageBook("b\ud800")])
    ledger.stages[0].drop("short", 2, 5, 300, [(0, 17, None), (1, 0, "x")])
    ledger.stages[1].drop("b\ud800", 1, 5)
    db = RunDatabase(str(tmp_path / "run.sqlite"))
    db.close()
    assert drops(tmp_path / "run.sqlite") == []  # it did not finish
    (tmp_path / "manifest.json").write_text(json.dumps({"ledger": ledger.to_dict()}))
    for _ in range(2):  # a later sampling step replaces what was known
        db = RunDatabase(str(tmp_path / "run.sqlite"))
        db.close()
        assert db.error == ""
        assert drops(tmp_path / "run.sqlite") == [
            ("b\\ud800", "b\\ud800", 1, 0, "[]"),
            ("rules", "short", 2, 300, '[[0, 17, null], [1, 0, "x"]]'),
        ]


@pytest.mark.parametrize(
    "content", ["", "{", "[1]", '{"ledger": 3}', '{"ledger": {"stages": [{"dropped": {"a": [1]}}]}}']
)
def test_a_damaged_manifest_only_stops_the_recording(tmp_path: Path, content: str) -> None:
    (tmp_path / "manifest.json").write_text(content)
    db = RunDatabase(str(tmp_path / "run.sqlite"))
    db.event("note", {"n": 1})
    db.close()
    assert "manifest.json" in db.error
    assert drops(tmp_path / "run.sqlite") == []


def test_a_database_of_an_earlier_version_gets_the_table(tmp_path: Path) -> None:
    old = sqlite3.connect(tmp_path / "run.sqlite")
    old.execute("CREATE TABLE events (at REAL, kind TEXT, data TEXT)")
    old.close()
    RunDatabase(str(tmp_path / "run.sqlite")).close()
    assert drops(tmp_path / "run.sqlite") == []
