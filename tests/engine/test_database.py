"""The run database: records what happens, and never hurts a run."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from tamis.engine.ledger import Ledger, StageBook
from tamis.engine.monitor import database as rundb
from tamis.engine.monitor.database import COLUMNS, RunDatabase
from tamis.engine.schema import EventKind


def test_events_units_and_samples_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    db = RunDatabase(str(path))
    db.event(EventKind.DIED, {"worker": 3, "how": "signal SIGKILL"})
    db.event(EventKind.UNIT, {"worker": 3, "unit": 9, "n_records": 10, "seconds": 0.5})
    db.event(EventKind.COMMIT, {"root": 1})
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
    db.event(EventKind.DIED, {"worker": 1})
    db.close()
    assert "unable to open" in db.error


def test_a_second_run_adds_to_the_first(tmp_path: Path) -> None:
    for n in range(2):
        db = RunDatabase(str(tmp_path / "run.sqlite"))
        db.event(EventKind.REMEDY, {"n": n})
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
    for _ in range(2):  # a later sampling step replaces what was known
        db = RunDatabase(str(tmp_path / "run.sqlite"))
        db.drops(ledger)
        db.close()
        assert db.error == ""
        assert drops(tmp_path / "run.sqlite") == [
            ("b\\ud800", "b\\ud800", 1, 0, "[]"),
            ("rules", "short", 2, 300, '[[0, 17, null], [1, 0, "x"]]'),
        ]


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    read = sqlite3.connect(path)
    found = read.execute(query).fetchall()
    read.close()
    return found


def test_rows_of_every_series(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    db = RunDatabase(str(path))
    db.put("processes", at=1.0, pid=7, role="worker", worker=2, segment=0, anon_bytes=5)
    db.put("stages", at=1.0, stage="a\ud800", n_in=3)
    db.put("gpus", at=1.0, gpu=0, busy=0.5)
    db.alert("memory", "warning", "86 % of the budget", {"percent": 86})
    db.replace("cells", [(0, 0, 10, 10, 0, 0, 0, 0), (1, 10, 20, 10, 0, 0, 0, 0)])
    db.replace("cells", [(0, 0, 10, 0, 0, 10, 0, 0)])
    db.close()
    assert rows(path, "SELECT pid, role, worker, anon_bytes, pss_bytes FROM processes") == [(7, "worker", 2, 5, None)]
    assert rows(path, "SELECT stage, n_in FROM stages") == [("a\\ud800", 3)]
    assert rows(path, "SELECT gpu, busy, name FROM gpus") == [(0, 0.5, None)]
    assert rows(path, "SELECT rule, level, text, data FROM alerts") == [
        ("memory", "warning", "86 % of the budget", '{"percent": 86}')
    ]
    assert rows(path, "SELECT cell, waiting, committed FROM cells") == [(0, 0, 10), (1, 10, 0)]


def test_an_earlier_attempt_is_remembered_by_stage(tmp_path: Path) -> None:
    path = str(tmp_path / "run.sqlite")
    db = RunDatabase(path)
    for at, n_in in ((1.0, 5), (3.0, 9), (2.0, 7)):
        db.put("stages", at=at, stage="rules", position=0, n_in=n_in, in_bytes=100 * n_in)
    db.close()
    again = RunDatabase(path)
    assert {k: (v["n_in"], v["in_bytes"]) for k, v in again.last_stages().items()} == {"rules": (9, 900)}
    again.close()


def test_while_a_reader_holds_the_file_rows_wait_and_no_caller_blocks(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    db = RunDatabase(str(path))
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM events").fetchone()
    db.event(EventKind.REMEDY, {"n": 1})
    db.flush()
    assert db.error == ""
    assert reader.execute("SELECT count(*) FROM events").fetchone() == (0,)
    reader.execute("COMMIT")
    reader.close()
    db.event(EventKind.REMEDY, {"n": 2})
    db.close()
    assert rows(path, "SELECT data FROM events") == [('{"n": 1}',), ('{"n": 2}',)]


def test_a_full_disk_interrupts_the_recording_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.sqlite"
    db = RunDatabase(str(path))
    assert db._db is not None
    n_pages = db._db.execute("PRAGMA page_count").fetchone()[0]
    db._db.execute(f"PRAGMA max_page_count={n_pages}")  # as a disk with no room left
    for i in range(2000):
        db.event(EventKind.REMEDY, {"text": "x" * 100, "n": i})
    db.flush()
    assert db.error == "database or disk is full"
    db.event(EventKind.REMEDY, {"n": -1})  # within the time of waiting: forgotten
    db.flush()
    db._db.execute("PRAGMA max_page_count=100000")
    monkeypatch.setattr(rundb.time, "monotonic", lambda: 1e12)
    db.event(EventKind.REMEDY, {"n": 7})
    db.flush()
    assert [json.loads(str(data))["n"] for (data,) in rows(path, "SELECT data FROM events")] == [0, 7]
    db.close()


def test_a_damaged_database_is_set_aside_and_a_new_one_begun(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    path.write_bytes(b"this is no database" * 500)
    db = RunDatabase(str(path))
    db.event(EventKind.REMEDY, {"n": 1})
    db.close()
    assert "was damaged (file is not a database) and is set aside" in db.error
    assert rows(path, "SELECT data FROM events") == [('{"n": 1}',)]
    assert (tmp_path / "run.sqlite.damaged").read_bytes().startswith(b"this is no database")


def test_a_value_that_sqlite_refuses_costs_its_own_flush_only(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    db = RunDatabase(str(path))
    db.flush()
    db.put("samples", at=1.0, used_bytes=1 << 70)
    db.flush()
    db.put("samples", at=2.0, used_bytes=5)
    db.close()
    assert rows(path, "SELECT at, used_bytes FROM samples") == [(2.0, 5)]


def test_old_points_are_thinned_and_the_highest_stay(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    db = RunDatabase(str(path))
    now = 1_000_000.0 * 1800
    for age in range(7200):  # two hours, one a second
        used = 9_999 if age == 5000 else age % 97
        db.put("samples", at=now - age, used_bytes=used)
        if age % 2 == 0:
            for pid in (1, 2):
                db.put("processes", at=now - age, pid=pid, role="worker")
    db.flush()
    db.thin(now)
    by_age = "SELECT count(*), max(used_bytes) FROM samples WHERE at > {0} AND at <= {1}"
    assert rows(path, by_age.format(now - 600, now)) == [(600, 96)]
    assert rows(path, by_age.format(now - 3600, now - 600)) == [(201, 96)]
    assert rows(path, by_age.format(0, now - 3600)) == [(20, 9_999)]
    assert rows(path, "SELECT max(n), min(n) FROM (SELECT count(*) AS n FROM processes GROUP BY at)") == [(2, 2)]
    left = rows(path, "SELECT at FROM samples")
    db.thin(now)
    assert rows(path, "SELECT at FROM samples") == left
    db.close()


def test_units_and_events_are_kept_all_at_first_and_ever_fewer_before(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    db = RunDatabase(str(path))
    for i in range(1, 100_001):
        db.put("units", at=float(i), unit=i)
    db.flush()
    db.thin(1e6)
    found = [int(str(r[0])) for r in rows(path, "SELECT unit FROM units ORDER BY unit")]
    assert found[-8000:] == list(range(92_001, 100_001))
    assert found[-12_000:-8000] == list(range(84_002, 92_001, 2))
    assert len(found) < 8000 + 4 * 4000 + 2000
    db.close()


def test_tracebacks_do_not_fill_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    db = RunDatabase(str(path))
    for i in range(1500):
        db.event(EventKind.FAILED, {"n": i, "trace": "x" * 4000})
    db.close()
    n, n_bytes = rows(path, "SELECT count(*), sum(length(data)) FROM events")[0]
    assert (n, int(str(n_bytes)) < 2_200_000) == (1500, True)


def test_the_columns_are_read_from_the_schema() -> None:
    assert COLUMNS["drops"] == ("stage", "reason", "documents", "bytes", "examples")
    assert COLUMNS["about"] == ("key", "value")
    assert COLUMNS["samples"][:3] == ("at", "used_bytes", "budget_bytes")


def test_a_disk_that_hangs_blocks_no_caller_and_loses_only_what_is_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tamis.engine.monitor.database._FLUSH_S", 0.0)
    db = RunDatabase(str(tmp_path / "run.sqlite"))
    hangs, own = threading.Event(), db._db
    assert own is not None

    class Slow:
        def execute(self, *given: Any) -> Any:
            hangs.wait(30)
            return own.execute(*given)

        executemany, close = own.executemany, own.close

    db._db = Slow()  # type: ignore[assignment]
    for worker in range(50):
        db.event(EventKind.UNIT, {"worker": worker})  # returns at once, or the test does not end before the disk does
    assert db._writer is not None
    assert db._writer.is_alive()
    monkeypatch.setattr("tamis.engine.monitor.database._MAX_PENDING", 60)
    monkeypatch.setattr("tamis.engine.monitor.database._PATIENCE_S", 0.01)
    for worker in range(50, 120):
        db.event(EventKind.UNIT, {"worker": worker})
    assert db._hangs  # waited for once: what waits is bounded, and the oldest of it goes
    hangs.set()
    db.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "run.sqlite")) as found:
        written = [row[0] for row in found.execute("SELECT worker FROM units ORDER BY rowid")]
    assert written[0] == 0  # taken before it hung
    assert written[-60:] == list(range(60, 120))
    assert len(written) in (61, 62)


def test_rows_joined_reach_readers_together(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    db = RunDatabase(str(path))  # nothing was flushed so far: the first row alone would be due
    with db.together():
        for pid in range(4):
            db.put("processes", at=1.0, pid=pid, role="worker")
            db._wait()
            assert rows(path, "SELECT count(*) FROM processes") == [(0,)]
    db._wait()
    assert rows(path, "SELECT count(*) FROM processes") == [(4,)]
    db.close()


def test_a_group_of_rows_is_dropped_whole_when_too_many_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rundb, "_MAX_PENDING", 10)
    path = tmp_path / "run.sqlite"
    db = RunDatabase(str(path))
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM processes").fetchone()
    for at in range(4):
        with db.together():
            for pid in range(4):
                db.put("processes", at=float(at), pid=pid)
        db.flush()  # fails: the reader holds the file
    reader.close()
    db.close()
    assert rows(path, "SELECT at, count(*) FROM processes GROUP BY at") == [(2.0, 4), (3.0, 4)]
