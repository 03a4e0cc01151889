"""The run database (SQLite): events, attempts, series of measurements and what was dropped, for observers of the run.

Observing must never hurt a run: writes are collected and flushed once a second, by a thread (a disk that is busy with
gigabytes of output may take a second over a kilobyte); a reader that holds the file makes them wait for the next flush,
and an error (a full disk) only interrupts the recording. A database that cannot be used is renamed, and a new one
begun. Series are thinned as they age, so the file of a run of days stays small. Drops and histograms come from the
books of the whole run, when it has finished.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, groupby, takewhile
from operator import itemgetter
from typing import Any, Literal

from tamis import files
from tamis.engine.ledger import Ledger
from tamis.engine.schema import EventKind, RunFacts
from tamis.engine.wire import to_json

VERSION = 2
_FLUSH_S = 1.0
_RETRY_S = 30.0  # after a full disk
_THIN_S = 300.0
_MAX_PENDING = 20_000
_PATIENCE_S = 1.0  # with a thread that has so many rows to write
MAX_DROPPED = 200  # documents that were dropped last, by name
_TRACE_BYTES = 2_000_000  # of tracebacks; afterwards one a minute

TABLES: dict[str, str] = {
    "about": "key TEXT PRIMARY KEY, value TEXT",
    "events": "at REAL, kind TEXT, data TEXT",
    "samples": (
        "at REAL, used_bytes INTEGER, budget_bytes INTEGER, documents INTEGER, written INTEGER, dropped INTEGER, "
        "quarantined INTEGER, read_bytes INTEGER, left_bytes INTEGER, level INTEGER, workers TEXT, queue_bytes "
        "INTEGER, scratch_bytes INTEGER, disk_free_bytes INTEGER, machine_used_bytes INTEGER, machine_total_bytes "
        "INTEGER, cgroup_used_bytes INTEGER, cgroup_limit_bytes INTEGER, psi_some REAL, psi_full REAL, cpu_s REAL, "
        "n_processes INTEGER, server_bytes INTEGER, supervisor_bytes INTEGER, duplicates INTEGER, peak_bytes INTEGER, "
        "not_sampled INTEGER, added INTEGER, in_flight INTEGER"
    ),
    "processes": (
        "at REAL, pid INTEGER, role TEXT, worker INTEGER, segment INTEGER, anon_bytes INTEGER, pss_bytes INTEGER, "
        "peak_bytes INTEGER, cpu_s REAL"
    ),
    "stages": (
        "at REAL, stage TEXT, position INTEGER, n_in INTEGER, n_out INTEGER, n_dropped INTEGER, in_bytes INTEGER, "
        "seconds REAL, cpu_s REAL, peak_bytes INTEGER, n_quarantined INTEGER"
    ),
    "gpus": (
        "at REAL, gpu INTEGER, name TEXT, used_bytes INTEGER, total_bytes INTEGER, busy REAL, temperature_c REAL, "
        "ours_bytes INTEGER, processes TEXT"
    ),
    "nodes": (
        "node INTEGER PRIMARY KEY, name TEXT, at REAL, is_up INTEGER, n_workers INTEGER, busy INTEGER, n_units "
        "INTEGER, used_bytes INTEGER, peak_bytes INTEGER, budget_bytes INTEGER, level INTEGER"
    ),
    "alerts": "at REAL, rule TEXT, level TEXT, text TEXT, data TEXT",
    "cells": (
        "cell INTEGER PRIMARY KEY, first_byte INTEGER, last_byte INTEGER, waiting INTEGER, running INTEGER, "
        "committed INTEGER, quarantined INTEGER, split INTEGER"
    ),
    "units": (
        "at REAL, worker INTEGER, unit INTEGER, n_records INTEGER, decoded_bytes INTEGER, largest_record INTEGER, "
        "peak_bytes INTEGER, floor_bytes INTEGER, seconds REAL, cpu_s REAL"
    ),
    "drops": "stage TEXT, reason TEXT, documents INTEGER, bytes INTEGER, examples TEXT, PRIMARY KEY (stage, reason)",
    "dropped": "at REAL, stage TEXT, reason TEXT, path TEXT, offset INTEGER, document TEXT",
    "histograms": "stage TEXT, name TEXT, kind TEXT, bins TEXT, PRIMARY KEY (stage, name, kind)",
}
_SCHEMA = "".join(f"CREATE TABLE IF NOT EXISTS {table} ({columns});\n" for table, columns in TABLES.items())
COLUMNS = {
    table: tuple(c.split()[0] for c in columns.split(", PRIMARY KEY (")[0].split(", "))
    for table, columns in TABLES.items()
}

# (age from which, one point per so many seconds); widths divide each other, so a point that is kept may stay forever.
_TIERS = ((600.0, 15.0), (3600.0, 180.0), (86_400.0, 1800.0), (864_000.0, 10_800.0))
_SERIES = {"samples": "max(used_bytes, coalesce(peak_bytes, 0))", "processes": "-at", "stages": "at", "gpus": "at"}
# Rows by number: the newest so many all, then every 2nd of as many, every 4th of twice as many, and so on.
_LISTS = {"units": 8000, "events": 1000, "alerts": 1000}


_Write = tuple[str, Sequence[Any]]
_Group = list[_Write]  # written in one transaction or not at all


class RunDatabase:
    def __init__(self, path: str) -> None:
        self._pending: list[_Group] = []
        self._again: list[_Group] = []  # a reader held the file
        self._n_pending = 0  # rows
        self._open_group: _Group | None = None
        self._writer: threading.Thread | None = None
        self._facts: dict[str, str] = {}  # recorded, as JSON
        self._hangs = False  # the disk under it
        self._flushed_s = self._traced_s = 0.0
        self._thinned_s = time.monotonic()
        self._resume_s = 0.0  # no writing before
        self._trace_bytes = 0
        self.error = ""
        self._db: sqlite3.Connection | None = None
        try:
            self._db = _open(path)
        except sqlite3.OperationalError as exc:
            self.error = str(exc)
        except OSError as exc:
            self.error = f"unable to open {path}: {exc.strerror}"
        except sqlite3.DatabaseError as exc:
            # Not a database, or damaged: what it held is lost; record what follows.
            self.error = f"{path} was damaged ({exc}) and is set aside"
            with contextlib.suppress(OSError, sqlite3.Error):
                files.set_aside(path, ".damaged")
                self._db = _open(path)

    # -- what may be recorded -----------------------------------------------------------------------------------------
    def about(self, facts: RunFacts) -> None:
        """Record facts about the run; those that were recorded already are not written again."""
        rows = {"version": json.dumps(VERSION)} | {key: json.dumps(value) for key, value in to_json(facts).items()}
        for key, value in rows.items():
            if self._facts.get(key) != value:
                self._put("INSERT OR REPLACE INTO about VALUES (?,?)", (key, value))
        self._facts = rows

    def put(self, table: str, **values: Any) -> None:
        """Queue one row of a series.

        Columns without a value are NULL; the time is now unless given.
        """
        values.setdefault("at", time.time())
        row = [_storable(v) if isinstance(v, str) else v for v in (values.get(c) for c in COLUMNS[table])]
        self._put(_INSERT[table], row)

    def event(self, kind: EventKind, data: Mapping[str, Any]) -> None:
        """Queue an event; those of units have a separate table, and commits are in the log."""
        if kind is EventKind.UNIT:
            self.put("units", **{c: data.get(c) for c in COLUMNS["units"][1:]})
        elif kind is not EventKind.COMMIT:
            self.put("events", kind=kind, data=json.dumps(self._bounded(data)))

    def sample(self, state: Mapping[str, Any], workers: Mapping[int, int], at: float | None = None) -> None:
        """Queue the totals of a moment.

        `state`: columns of `samples` by name.
        """
        values = {c: state.get(c) for c in COLUMNS["samples"]}
        values |= {"workers": json.dumps(dict(workers)), "at": time.time() if at is None else at}
        self.put("samples", **values)

    def alert(self, rule: str, level: str, text: str, data: Mapping[str, Any] | None = None) -> None:
        """Record an alert. `level`: warning, critical or resolved."""
        self.put("alerts", rule=rule, level=level, text=text, data=json.dumps(dict(data or {})))

    def replace(self, table: Literal["cells", "nodes"], rows: Iterable[Sequence[Any]]) -> None:
        """Replace cells of the partition map or nodes of a cluster; columns in their order.

        Those not given stay as they are.
        """
        statement = _INSERT[table].replace("INSERT", "INSERT OR REPLACE", 1)
        for row in rows:
            self._put(statement, row)

    def clear(self, table: Literal["cells", "drops", "nodes"]) -> None:
        self._put(f"DELETE FROM {table}", ())

    def drops(self, ledger: Ledger) -> None:
        """Replace the table of dropped documents, by stage and reason, with those of the books of the whole run.

        `examples` is JSON: [number of the input file, offset in it, id or null] each.
        """
        group: _Group = [("DELETE FROM drops", ())]
        for stage in ledger.stages:
            for reason, dropped in stage.dropped.items():
                row = (
                    _storable(stage.name),
                    _storable(reason),
                    dropped.n,
                    dropped.n_bytes,
                    json.dumps(dropped.examples),
                )
                group.append(("INSERT INTO drops VALUES (?,?,?,?,?)", row))
        self._pending.append(group)

    def rule_counts(self, rows: Iterable[tuple[str, str, int, int]]) -> None:
        """Replace rows of the table `drops` while the run works: stage, reason, documents, bytes."""
        for stage, reason, n, n_bytes in rows:
            self._put(
                "INSERT OR REPLACE INTO drops VALUES (?,?,?,?,'[]')", (_storable(stage), _storable(reason), n, n_bytes)
            )

    def dropped(self, at: float, rows: Iterable[tuple[str, str, str, int, str]]) -> None:
        """Queue documents that were dropped: stage, reason, path, offset, id. Only the newest ones stay."""
        for stage, reason, path, offset, document in rows:
            self.put("dropped", at=at, stage=stage, reason=reason, path=path, offset=offset, document=document)
        self._put("DELETE FROM dropped WHERE rowid <= (SELECT max(rowid) FROM dropped) - ?", (MAX_DROPPED,))

    def histograms(self, tables: Iterable[Mapping[str, Any]]) -> None:
        """Replace document lengths and scores of the whole run (engine/histograms.py)."""
        group: _Group = [("DELETE FROM histograms", ())]
        for table in tables:
            row = (*(_storable(table[c]) for c in ("stage", "name", "kind")), json.dumps(table["bins"]))
            group.append(("INSERT OR REPLACE INTO histograms VALUES (?,?,?,?)", row))
        self._pending.append(group)

    def last_stages(self) -> dict[str, dict[str, Any]]:
        """Return the last row that an earlier attempt of this run recorded for each stage."""
        self._wait()
        if self._db is None:
            return {}
        names = ", ".join(COLUMNS["stages"][1:])
        try:
            rows = self._db.execute(f"SELECT {names}, max(at) FROM stages GROUP BY stage LIMIT 1000").fetchall()
        except sqlite3.Error:
            return {}
        return {str(row[0]): dict(zip(COLUMNS["stages"][1:], row[:-1], strict=True)) for row in rows}

    # -- writing ------------------------------------------------------------------------------------------------------
    def _bounded(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the data without its traceback once so many have been stored that they would fill the disk."""
        trace = data.get("trace")
        if not trace:
            return data
        now = time.monotonic()
        self._trace_bytes += len(trace)
        if self._trace_bytes > _TRACE_BYTES and now - self._traced_s < 60.0:
            return {k: v for k, v in data.items() if k != "trace"}
        self._traced_s = now
        return data

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Write the rows put inside in one transaction, so that a reader sees all rows of a sample or none."""
        assert self._open_group is None, "groups of rows do not nest"
        group: _Group = []
        self._open_group = group
        try:
            yield
        finally:
            self._open_group = None
            self._queue(group)

    def _put(self, statement: str, values: Sequence[Any]) -> None:
        if self._open_group is not None:
            self._open_group.append((statement, values))
        else:
            self._queue([(statement, values)])

    def _queue(self, group: _Group) -> None:
        self._pending.append(group)
        self._n_pending += len(group)
        now = time.monotonic()
        if now - self._flushed_s < _FLUSH_S and self._n_pending <= 1000:
            return
        if self._writer is not None and self._writer.is_alive() and self._keep_waiting(self._writer):
            return
        self._hangs = False
        self._writer = threading.Thread(
            target=self._write, args=(self._take_groups(now), now), name="tamis-observe", daemon=True
        )
        self._writer.start()

    def _keep_waiting(self, writer: threading.Thread) -> bool:
        """Return True if the thread is still writing, and bound the rows that wait for it.

        If rows arrive faster than it writes them, wait for it for a second, once; if the disk hangs, drop the oldest
        rows.
        """
        if self._n_pending <= _MAX_PENDING:
            return True
        if not self._hangs:
            writer.join(_PATIENCE_S)
            self._hangs = writer.is_alive()
        if self._hangs:
            self._pending = _newest(self._pending)
            self._n_pending = sum(map(len, self._pending))
        return self._hangs

    def flush(self) -> None:
        """Write what is known, and wait for it."""
        self._wait()
        now = time.monotonic()
        self._write(self._take_groups(now), now)

    def _wait(self) -> None:
        if self._writer is not None:
            self._writer.join()

    def _take_groups(self, now: float) -> list[_Group]:
        self._flushed_s = now
        taken, self._pending, self._n_pending = [*self._again, *self._pending], [], 0
        self._again = []
        return taken

    def _write(self, taken: list[_Group], now: float) -> None:
        """Write the given groups in one transaction.

        Must run one call at a time: in the writer thread, or in a caller that has waited for that thread.
        """
        if self._db is None or now < self._resume_s or not taken:
            return
        try:
            self._db.execute("BEGIN IMMEDIATE")
            for statement, rows in groupby(chain.from_iterable(taken), itemgetter(0)):
                self._db.executemany(statement, (values for _, values in rows))
            if now - self._thinned_s > _THIN_S:
                self._thinned_s = now
                self.thin(time.time())
            self._db.execute("COMMIT")
        except (sqlite3.Error, OverflowError) as exc:
            self._failed(exc, now, taken)

    def _failed(self, exc: Exception, now: float, taken: list[_Group]) -> None:
        """Roll back and decide when to retry after a failed write.

        A locked database is retried with the next flush, a full disk after a while; a damaged database is left alone.
        """
        assert self._db is not None
        with contextlib.suppress(sqlite3.Error):
            self._db.execute("ROLLBACK")
        if isinstance(exc, sqlite3.OperationalError) and "locked" in str(exc):
            self._again = _newest(taken)
            return
        self.error = self.error or str(exc)
        if isinstance(exc, sqlite3.OperationalError):
            self._resume_s = now + _RETRY_S
        elif type(exc) is sqlite3.DatabaseError:
            self._db.close()
            self._db = None

    def thin(self, now: float) -> None:
        """Thin out older points: keep one moment per interval and series, the highest one of `samples`.

        The rows of one moment go or stay together, so that sums over processes stay sums.
        """
        assert self._db is not None
        for table, best in _SERIES.items():
            for i, (age, width) in enumerate(_TIERS):
                until = now - age
                since = now - _TIERS[i + 1][0] if i + 1 < len(_TIERS) else 0.0
                self._db.execute(
                    f"DELETE FROM {table} WHERE at >= ? AND at < ? AND at NOT IN (SELECT at FROM (SELECT at, "
                    f"max({best}) FROM {table} WHERE at >= ? AND at < ? GROUP BY CAST(at / ? AS INTEGER)))",
                    (since, until, since, until, width),
                )
        for table, n in _LISTS.items():
            newest = self._db.execute(f"SELECT coalesce(max(rowid), 0) FROM {table}").fetchone()[0]
            step = 2
            while newest - n * (step // 2) > 0:
                self._db.execute(
                    f"DELETE FROM {table} WHERE rowid <= ? AND rowid > ? AND rowid % ? != 0",
                    (newest - n * (step // 2), newest - n * step, step),
                )
                step *= 2

    def close(self) -> None:
        self._wait()
        self._resume_s = 0.0
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("PRAGMA busy_timeout=5000")  # no caller is waiting any more
        self.flush()
        if self._db is not None:
            self._db.close()
            self._db = None


_INSERT = {t: f"INSERT INTO {t} ({','.join(c)}) VALUES ({','.join('?' * len(c))})" for t, c in COLUMNS.items()}


def _newest(groups: list[_Group]) -> list[_Group]:
    """Return the newest groups that together have at most `_MAX_PENDING` rows, oldest first."""
    n_rows = accumulate(len(group) for group in reversed(groups))
    n_groups = sum(1 for _ in takewhile(lambda n: n <= _MAX_PENDING, n_rows))
    return groups[len(groups) - n_groups :]


def _open(path: str) -> sqlite3.Connection:
    # Later 20 ms: what could not be written is kept for the next flush.
    # Not WAL: its side files keep readers on other machines, and those that may only read, from opening the database.
    os.close(files.open_to_append(path))  # SQLite would follow a link, and let the umask decide who may write
    db = sqlite3.connect(path, timeout=5.0, isolation_level=None, check_same_thread=False)  # one thread at a time
    try:
        db.execute("PRAGMA synchronous=OFF")
        db.executescript(_SCHEMA)
        db.execute("PRAGMA busy_timeout=20")
    except sqlite3.Error:
        db.close()
        raise
    return db


def _storable(text: str) -> str:
    """Replace lone surrogates, which a name may have and SQLite refuses."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
