"""The run database (SQLite): events, attempts and memory samples, for whoever observes the run.

Observing must never hurt a run: writes are collected and flushed once a second, and an error (a full disk) only stops the
recording. Samples are thinned as they age, so the file stays small.
"""

from __future__ import annotations

import json
import sqlite3
import time
from typing import Any

_FLUSH_S = 1.0
_SAMPLE_S = 1.0
_MAX_SAMPLES = 20_000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS events (at REAL, kind TEXT, data TEXT);
CREATE TABLE IF NOT EXISTS samples (at REAL, used_bytes INTEGER, budget_bytes INTEGER, documents INTEGER, written INTEGER,
  dropped INTEGER, quarantined INTEGER, read_bytes INTEGER, left_bytes INTEGER, level INTEGER, workers TEXT);
CREATE TABLE IF NOT EXISTS units (at REAL, worker INTEGER, unit INTEGER, n_records INTEGER, decoded_bytes INTEGER,
  largest_record INTEGER, peak_bytes INTEGER, floor_bytes INTEGER, seconds REAL, cpu_s REAL);
"""


class RunDatabase:
    def __init__(self, path: str) -> None:
        self._pending: list[tuple[str, tuple[Any, ...]]] = []
        self._flushed_s = self._sampled_s = 0.0
        self._n_samples = 0
        self.error = ""
        try:
            self._db: sqlite3.Connection | None = sqlite3.connect(path, timeout=1.0, isolation_level=None)
            self._db.execute("PRAGMA synchronous=OFF")
            self._db.executescript(_SCHEMA)
        except sqlite3.Error as exc:
            self._db, self.error = None, str(exc)

    def event(self, kind: str, data: dict[str, Any]) -> None:
        if kind == "unit":
            columns = (
                "worker",
                "unit",
                "n_records",
                "decoded_bytes",
                "largest_record",
                "peak_bytes",
                "floor_bytes",
                "seconds",
                "cpu_s",
            )
            self._put("INSERT INTO units VALUES (?,?,?,?,?,?,?,?,?,?)", (time.time(), *(data.get(c) for c in columns)))
        elif kind != "commit":
            self._put("INSERT INTO events VALUES (?,?,?)", (time.time(), kind, json.dumps(data)))

    def sample(self, state: dict[str, Any], workers: dict[int, int]) -> None:
        now = time.monotonic()
        if now - self._sampled_s < _SAMPLE_S:
            return
        self._sampled_s = now
        columns = (
            "used_bytes",
            "budget_bytes",
            "documents",
            "written",
            "dropped",
            "quarantined",
            "read_bytes",
            "left_bytes",
            "level",
        )
        values = (time.time(), *(state[c] for c in columns), json.dumps(workers))
        self._put("INSERT INTO samples VALUES (?,?,?,?,?,?,?,?,?,?,?)", values)
        self._n_samples += 1
        if self._n_samples % _MAX_SAMPLES == 0:  # keep every second one of the older half
            self._put("DELETE FROM samples WHERE rowid % 2 = 0 AND rowid < (SELECT max(rowid) / 2 FROM samples)", ())

    def _put(self, statement: str, values: tuple[Any, ...]) -> None:
        self._pending.append((statement, values))
        now = time.monotonic()
        if now - self._flushed_s >= _FLUSH_S or len(self._pending) > 1000:
            self._flushed_s = now
            self._flush()

    def _flush(self) -> None:
        pending, self._pending = self._pending, []
        if self._db is None:
            return
        try:
            self._db.execute("BEGIN")
            for statement, values in pending:
                self._db.execute(statement, values)
            self._db.execute("COMMIT")
        except sqlite3.Error as exc:
            self._db, self.error = None, str(exc)

    def close(self) -> None:
        self._flush()
        if self._db is not None:
            self._db.close()
            self._db = None
