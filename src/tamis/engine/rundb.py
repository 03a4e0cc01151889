"""The run database (SQLite): events, attempts, memory samples and what was dropped, for whoever observes the run.

Observing must never hurt a run: writes are collected and flushed once a second, and an error (a full disk) only stops the
recording. Samples are thinned as they age, so the file stays small. The table of drops is filled when a finished run closes
the database, from the manifest beside it: the books of the whole run, those of earlier attempts included.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Mapping
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
CREATE TABLE IF NOT EXISTS drops (stage TEXT, reason TEXT, documents INTEGER, bytes INTEGER, examples TEXT,
  PRIMARY KEY (stage, reason));
"""


class RunDatabase:
    def __init__(self, path: str) -> None:
        self._pending: list[tuple[str, tuple[Any, ...]]] = []
        self._flushed_s = self._sampled_s = 0.0
        self._n_samples = 0
        self.error = ""
        self._manifest = os.path.join(os.path.dirname(path), "manifest.json")
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

    def drops(self, ledger: Mapping[str, Any]) -> None:
        """What was dropped, by stage and reason, from the books of the whole run; replaces what was known before.

        `examples` is JSON: [number of the input file, offset in it, id or null] each.
        """
        self._pending.append(("DELETE FROM drops", ()))
        for stage in ledger["stages"]:
            for reason, (n, _, n_bytes, examples) in stage["dropped"].items():
                row = (_storable(stage["name"]), _storable(reason), n, n_bytes, json.dumps(examples))
                self._pending.append(("INSERT INTO drops VALUES (?,?,?,?,?)", row))

    def _copy_drops(self) -> None:
        try:
            with open(self._manifest, "rb") as file:
                self.drops(json.load(file)["ledger"])
        except FileNotFoundError:  # the run did not finish
            pass
        except (OSError, ValueError, KeyError, TypeError) as exc:
            self.error = self.error or f"{self._manifest}: {exc}"

    def close(self) -> None:
        self._copy_drops()
        self._flush()
        if self._db is not None:
            self._db.close()
            self._db = None


def _storable(text: str) -> str:
    """SQLite refuses lone surrogates, which a name may have."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
