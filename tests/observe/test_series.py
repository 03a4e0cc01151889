"""The series of a run: thinned, bounded, and never a traceback from a hostile file."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tamis.engine.ledger import Ledger, StageBook
from tamis.engine.monitor.database import COLUMNS, RunDatabase
from tamis.engine.schema import EventKind, RunFacts
from tamis.observe import series as module
from tamis.observe.points import (
    AlertPoint,
    Cell,
    DropPoint,
    EventPoint,
    GpuPoint,
    ProcessPoint,
    StagePoint,
    Total,
    UnitPoint,
)
from tamis.observe.series import SeriesError, open_series


def test_every_column_of_the_database_is_read() -> None:
    kinds = {
        "samples": Total,
        "processes": ProcessPoint,
        "stages": StagePoint,
        "gpus": GpuPoint,
        "units": UnitPoint,
        "events": EventPoint,
        "alerts": AlertPoint,
        "cells": Cell,
        "drops": DropPoint,
    }
    assert {table: kind._fields for table, kind in kinds.items()} == {table: COLUMNS[table] for table in kinds}


def test_totals_are_thinned_over_the_whole_run_and_keep_the_highest(tmp_path: Path) -> None:
    db = RunDatabase(str(tmp_path / "run.sqlite"))
    for i in range(1000):
        used = 900 if i == 555 else i % 7
        db.sample(
            {"used_bytes": used, "peak_bytes": used + (1000 if i == 444 else 1), "documents": i}, {1: i}, at=float(i)
        )
    db.close()
    with open_series(tmp_path) as series:
        found = series.totals(max_points=10)
        assert len(found) == 10
        assert [t.used_bytes for t in found] == [6, 6, 6, 6, 6, 900, 6, 6, 6, 6]
        assert [t.peak_bytes for t in found] == [7, 7, 7, 7, 1003, 901, 7, 7, 7, 7]
        assert [t.at for t in found] == sorted(t.at for t in found)
        assert len(series.totals()) == 600
        assert [t.documents for t in series.totals(since=990.0)] == list(range(990, 1000))
        assert series.totals(since=5000.0) == []
        last = series.last()
        assert last is not None
        assert (last.documents, last.workers, last.psi_some) == (999, {"1": 999}, None)


def test_processes_and_gpus_come_by_moments(tmp_path: Path) -> None:
    db = RunDatabase(str(tmp_path / "run.sqlite"))
    for i in range(100):
        for worker in (1, 2):
            db.put("processes", at=float(i), pid=worker, role="worker", worker=worker, pss_bytes=i)
        db.put("gpus", at=float(i), gpu=0, name="H", busy=0.25, processes='{"7": 5}')
    db.close()
    with open_series(tmp_path) as series:
        found = series.processes(max_points=5)
        assert [(p.at, p.worker) for p in found[-4:]] == [(79.0, 1), (79.0, 2), (99.0, 1), (99.0, 2)]
        assert len(found) == 10
        assert [p.at for p in series.processes(max_points=1)] == [99.0, 99.0]
        assert series.gpus(max_points=1) == [GpuPoint(99.0, 0, "H", busy=0.25, processes={"7": 5})]


def test_stages_are_the_newest_of_each_in_order(tmp_path: Path) -> None:
    db = RunDatabase(str(tmp_path / "run.sqlite"))
    for i in range(50):
        db.put("stages", at=float(i), stage="b", position=1, n_in=i, in_bytes=10 * i)
        db.put("stages", at=float(i), stage="a", position=0, n_in=2 * i)
    db.close()
    with open_series(tmp_path) as series:
        assert [(s.stage, s.at, s.n_in) for s in series.stages()] == [("a", 49.0, 98), ("b", 49.0, 49)]


def test_lists_are_the_newest_oldest_first(tmp_path: Path) -> None:
    db = RunDatabase(str(tmp_path / "run.sqlite"))
    for i in range(10):
        db.event(EventKind.UNIT, {"worker": 1, "unit": i, "seconds": 0.5})
        db.event(EventKind.FAILED, {"error": f"e{i}", "trace": "long", "stage": None})
        db.alert("memory", "warning", f"a{i}", {"n": i})
    db.replace("cells", [(i, i * 10, i * 10 + 10, 4, 3, 2, 1, i) for i in range(3)])
    book = StageBook("rules")
    book.drop("short", 3, 0, 99)
    db.drops(Ledger(stages=[book]))
    db.close()
    with open_series(tmp_path) as series:
        assert [u.unit for u in series.units(3)] == [7, 8, 9]
        assert [e.text for e in series.events(2)] == ["error: e8", "error: e9"]
        assert [(a.text, a.data) for a in series.alerts(1)] == [("a9", {"n": 9})]
        assert series.cells()[2] == Cell(2, 20, 30, 4, 3, 2, 1, 2)
        assert series.drops() == [DropPoint("rules", "short", 3, 99, "[]")]


def test_a_table_with_other_columns_is_refused(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "run.sqlite")
    db.execute("CREATE TABLE samples (at REAL, used_bytes INTEGER)")
    db.execute("INSERT INTO samples VALUES (5.0, 100)")
    db.commit()
    db.close()
    with open_series(tmp_path) as series:
        with pytest.raises(SeriesError, match="no such column"):
            series.totals()
        assert series.events() == []


def test_no_database_is_an_empty_series(tmp_path: Path) -> None:
    with open_series(tmp_path / "nowhere") as series:
        assert (series.last(), series.totals(), series.stages(), series.cells()) == (None, [], [], [])
        assert series.about == RunFacts()
    (tmp_path / "run.sqlite").touch()  # a run that has just begun
    with open_series(tmp_path) as series:
        assert (series.last(), series.events()) == (None, [])


def test_a_damaged_database_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "run.sqlite").write_bytes(b"no database, but many bytes of it" * 100)
    with pytest.raises(SeriesError, match=r"run.sqlite cannot be read \(file is not a database\): it is damaged"):
        open_series(tmp_path)


def test_a_database_cut_off_in_the_middle(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    db = RunDatabase(str(path))
    for i in range(5000):
        db.sample({"used_bytes": i}, {1: i}, at=float(i))
    db.close()
    whole = path.read_bytes()
    n_read = 0
    for size in (0, 50, 100, 4096, 5000, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        try:
            with open_series(tmp_path) as series:
                series.totals()
                series.last()
                n_read += 1
        except SeriesError as exc:
            assert "cannot be read" in str(exc)  # noqa: PT017
    assert n_read < 7  # the cuts did damage


def test_values_of_the_wrong_kind_become_numbers_and_texts(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "run.sqlite")
    db.execute(f"CREATE TABLE samples ({', '.join(COLUMNS['samples'])})")
    values = "1.0, 'many', '[1, 2]', 9e999, x'ff'"
    db.execute(f"INSERT INTO samples (at, used_bytes, workers, psi_some, level) VALUES ({values})")
    db.execute("CREATE TABLE events (at, kind, data)")
    db.execute("INSERT INTO events VALUES ('x', CAST(x'ff41' AS TEXT), 'no json')")
    db.execute("INSERT INTO events VALUES (2, 5, ?)", ("[" * 100_000,))
    db.execute("CREATE TABLE about (key, value)")
    db.execute(
        "INSERT INTO about VALUES ('version', '\"new\"'), ('broken', '{'), ('name', '{'), "
        "('workers', '\"4\"'), ('stages', '[1]'), ('gpu', '{\"busy\": 1}'), ('n_files', '3')"
    )
    db.commit()
    db.close()
    with open_series(tmp_path) as series:
        assert series.about == RunFacts(n_files=3)  # what is damaged has its default
        last = series.last()
        assert last is not None
        assert (last.used_bytes, last.psi_some, last.level, last.workers) == (0, None, 0, {"text": 0})
        first, second = series.events()
        assert (first.at, first.kind, first.text) == (0.0, "\ufffdA", "no json")
        assert (second.at, second.kind, len(second.text)) == (2.0, "5", 10_000)


def test_a_query_without_end_is_broken_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    db = sqlite3.connect(tmp_path / "run.sqlite")
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS at, i AS used_bytes FROM n"
    db.execute(f"CREATE VIEW samples AS {endless}")
    db.commit()
    db.close()
    monkeypatch.setattr(module, "_DEADLINE_S", 0.05)
    with open_series(tmp_path) as series, pytest.raises(SeriesError, match="interrupted"):
        series.totals()


def test_odd_names_of_folders(tmp_path: Path) -> None:
    folder = tmp_path / "a b?mode=rw#100%25"
    folder.mkdir()
    db = RunDatabase(str(folder / "run.sqlite"))
    db.event(EventKind.REMEDY, {"text": "here"})
    db.close()
    with open_series(folder) as series:
        assert [e.text for e in series.events()] == ["here"]


def test_a_folder_in_the_place_of_the_database(tmp_path: Path) -> None:
    (tmp_path / "run.sqlite").mkdir()
    with open_series(tmp_path) as series:
        assert series.totals() == []


KILLED = """
import os, signal, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA synchronous=OFF")
db.execute("PRAGMA cache_size=2")
db.execute("CREATE TABLE events (at REAL, kind TEXT, data TEXT)")
db.execute("INSERT INTO events VALUES (1.0, 'note', '{}')")
db.execute("BEGIN IMMEDIATE")
for i in range(2000):
    db.execute("INSERT INTO events VALUES (2.0, 'note', ?)", ("x" * 500,))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_run_killed_while_it_wrote_can_be_read_as_far_as_possible(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "run.sqlite")], check=False)
    assert done.returncode == -9
    assert (tmp_path / "run.sqlite-journal").stat().st_size > 0
    with open_series(tmp_path) as series:
        assert series.events(5000)[0] == EventPoint(1.0, "note", {})


def test_reading_does_not_write(tmp_path: Path) -> None:
    db = RunDatabase(str(tmp_path / "run.sqlite"))
    db.about(RunFacts(stages=["a"]))
    db.close()
    before = (tmp_path / "run.sqlite").read_bytes()
    with open_series(tmp_path) as series:
        assert series.about == RunFacts(stages=["a"])
    assert (tmp_path / "run.sqlite").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["run.sqlite"]


def test_all_reads_see_the_same_state_of_the_database(tmp_path: Path) -> None:
    db = RunDatabase(str(tmp_path / "run.sqlite"))

    def record(at: float, n: int) -> None:
        with db.together():
            for pid in range(n):
                db.put("processes", at=at, pid=pid, role="worker")
            db.sample({"n_processes": n}, {}, at=at)
        db.flush()

    record(1.0, 2)
    with open_series(tmp_path) as series:
        last = series.last()
        record(2.0, 3)
        assert last is not None
        assert last.n_processes == len(series.processes(1)) == len(series.newest_processes()) == 2
    record(3.0, 4)
    db.close()
    with open_series(tmp_path) as series:
        assert [p.at for p in series.processes()] == [1.0] * 2 + [2.0] * 3 + [3.0] * 4
