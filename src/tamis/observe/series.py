"""Reads the database of a run: memory, processes, stages, GPUs, units, events, alerts, the partition map.

Reads only, in bounded numbers, also while the run writes. A run directory is not trusted: values become plain numbers
and texts, a query that does not end is aborted, and an unreadable database raises SeriesError with a message. One that
has no tables yet is empty.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast, get_type_hints

from tamis.engine.schema import RunFacts, read_fields
from tamis.errors import TamisError
from tamis.files import Closing
from tamis.observe import points

MAX_CELLS = 1000
MAX_STAGES = 1000
_MAX_PER_MOMENT = 512  # processes, or GPUs
_MAX_TEXT = 10_000
_DEADLINE_S = 10.0
Row = TypeVar("Row")


class SeriesError(TamisError):
    """The run database is there and cannot be read."""


def _quoted(path: Path) -> str:
    """Quote a path for use in an SQLite URI."""
    return str(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def open_series(run_dir: Path) -> Series:
    """Open the series of the run in this run directory; an empty one if there is no database."""
    path = run_dir / "run.sqlite"
    if not path.is_file():
        return Series(None)
    reasons = []
    # A run that was killed while it wrote leaves a journal that only a writer may apply: what the file holds is better
    # than nothing.
    for mode in ("mode=ro", "mode=ro&immutable=1"):
        try:
            db = _connect(path, mode)
        except sqlite3.Error as exc:
            reasons.append(str(exc))
            continue
        try:
            return Series(db)
        except SeriesError:
            db.close()
            raise
    raise SeriesError(
        f"{path} cannot be read ({reasons[0]}): it is damaged, or no run database of Tamis. The output and the commit "
        "log are not affected; delete the file to look at the rest of the run"
    )


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    db = sqlite3.connect(f"file:{_quoted(path)}?{mode}", uri=True, timeout=1.0)
    try:
        db.text_factory = lambda raw: raw.decode("utf-8", "replace")
        db.execute("PRAGMA trusted_schema=OFF")
        db.execute("BEGIN")  # one transaction for all reads, so that figures of two samples are never mixed
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:
        db.close()
        raise
    return db


class Series(Closing):
    """A reader of a run's database. A context manager: all reads of one instance see the same state of the database.

    Close it soon: until then the run keeps its new rows in memory.
    """

    def __init__(self, db: sqlite3.Connection | None) -> None:
        self._db = db
        self._until = 0.0
        if db is not None:
            db.set_progress_handler(lambda: time.monotonic() > self._until, 100_000)
        self._tables = {str(row[0]) for row in self._query("SELECT name FROM sqlite_master LIMIT 1000")}
        self.about = self._about()

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    # -- the series --------------------------------------------------------------------------------------------------
    def totals(self, max_points: int = 600, since: float | None = None) -> list[points.Total]:
        """Return totals over the whole run, oldest first.

        Of each interval the moment with the most in use, and the peak of the interval.
        """
        span = self._span("samples", since)
        if span is None:
            return []
        first, width = span[0], _width(span, max_points)
        bins = f"CAST((at - {first!r}) / {width!r} AS INTEGER)"
        rows = self._points(
            points.Total, "samples", f"WHERE at >= {first!r} GROUP BY {bins} ORDER BY at", max_points, "used_bytes"
        )
        peaks = {
            _int(k): _int(peak)
            for k, peak in self._query(
                f"SELECT {bins}, max(peak_bytes) FROM samples WHERE at >= {first!r} GROUP BY 1 LIMIT {max_points}"
            )
        }
        return [_with_peak(t, peaks.get(int((t.at - first) / width), 0)) for t in rows]

    def last(self) -> points.Total | None:
        rows = self._points(points.Total, "samples", "ORDER BY at DESC", 1)
        return _with_peak(rows[0], rows[0].peak_bytes) if rows else None

    def processes(self, max_points: int = 300) -> list[points.ProcessPoint]:
        """Return all processes at up to `max_points` moments, oldest first."""
        return self._moments(points.ProcessPoint, "processes", max_points, "role, worker, pid")

    def newest_processes(self, n: int = _MAX_PER_MOMENT) -> list[points.ProcessPoint]:
        """Return the processes of the last moment, at most n, without reading all the others."""
        rows = self._points(points.ProcessPoint, "processes", "ORDER BY rowid DESC", min(n, _MAX_PER_MOMENT))
        return [row for row in reversed(rows) if row.at == rows[0].at]

    def gpus(self, max_points: int = 300, since: float | None = None) -> list[points.GpuPoint]:
        return self._moments(points.GpuPoint, "gpus", max_points, "gpu", since)

    def nodes(self) -> list[points.NodePoint]:
        """Return the machines of a cluster; none for a run on one machine."""
        return self._points(points.NodePoint, "nodes", "ORDER BY node", _MAX_PER_MOMENT)

    def stage_moments(self, max_points: int = 300, since: float | None = None) -> list[points.StagePoint]:
        """Return all stages at up to `max_points` moments, oldest first, in one pass over the table."""
        return self._moments(points.StagePoint, "stages", max_points, "position", since)

    def stages(self) -> list[points.StagePoint]:
        """Return the stages at the newest moment, which is that of `last`, in order."""
        newest = "WHERE at = (SELECT max(at) FROM stages) ORDER BY position"
        return self._points(points.StagePoint, "stages", newest, MAX_STAGES)

    def units(self, n: int = 2000) -> list[points.UnitPoint]:
        """Return the newest partitions, oldest first."""
        return self._points(points.UnitPoint, "units", "ORDER BY rowid DESC", n)[::-1]

    def events(self, n: int = 60) -> list[points.EventPoint]:
        return self._points(points.EventPoint, "events", "ORDER BY rowid DESC", n)[::-1]

    def failures(self, since: float, n: int = 50) -> list[points.EventPoint]:
        """Return the events of errors raised in workers, the newest first."""
        rows = self._points(
            points.EventPoint, "events", "WHERE kind = 'failed' AND at >= ? ORDER BY at DESC", n, values=(since,)
        )
        return [event for event in rows if event.data.get("kind") == "error"]

    def alerts(self, n: int = 60) -> list[points.AlertPoint]:
        return self._points(points.AlertPoint, "alerts", "ORDER BY rowid DESC", n)[::-1]

    def cells(self) -> list[points.Cell]:
        return self._points(points.Cell, "cells", "ORDER BY cell", MAX_CELLS)

    def dropped(self, n: int = 50) -> list[points.DroppedPoint]:
        """Return the documents that were dropped last, oldest first."""
        return self._points(points.DroppedPoint, "dropped", "ORDER BY rowid DESC", n)[::-1]

    def drops(self) -> list[points.DropPoint]:
        """Return what was dropped so far for which reason, the most first."""
        return self._points(points.DropPoint, "drops", "ORDER BY documents DESC", 10_000)

    # -- inside ------------------------------------------------------------------------------------------------------
    def _about(self) -> RunFacts:
        """Return the facts about the run; those that are missing or damaged have their defaults."""
        if "about" not in self._tables:
            return RunFacts()
        values = {}
        for key, value in self._query("SELECT key, value FROM about LIMIT 1000"):
            with contextlib.suppress(ValueError, RecursionError):
                values[str(key)] = json.loads(str(value)[:1_000_000])
        return read_fields(RunFacts, values, [])

    def _query(self, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        if self._db is None:
            return []
        self._until = time.monotonic() + _DEADLINE_S
        try:
            return self._db.execute(statement, values).fetchall()
        except (sqlite3.Error, OverflowError) as exc:
            raise SeriesError(f"the run database cannot be read ({exc})") from exc

    def _span(self, table: str, since: float | None = None) -> tuple[float, float] | None:
        """Return the first and the last moment of a series, from `since` on."""
        if table not in self._tables:
            return None
        first, last = self._query(
            f"SELECT min(at), max(at) FROM {table} WHERE at >= ?", (-1.0 if since is None else since,)
        )[0]
        return None if first is None else (_float(first) or 0.0, _float(last) or 0.0)

    def _points(
        self, kind: type[Row], table: str, rest: str, n: int, best: str = "", values: tuple[Any, ...] = ()
    ) -> list[Row]:
        """Return rows as points. With `best`, those of grouped rows that have the highest value in this column."""
        if table not in self._tables:
            return []
        hints = _types_of(cast("Any", kind))
        names = list(hints)
        columns = ", ".join([*names, f"max({best})"] if best else names)
        rows = self._query(f"SELECT {columns} FROM {table} {rest} LIMIT {max(1, int(n))}", values)
        converters = [_CONVERT[hint] for hint in hints.values()]
        # Rows of whole numbers, as the map's thousand cells, need no conversion where the database holds what it
        # should.
        plain = (int,) * len(names) if set(hints.values()) == {int} else None
        return [kind(*row) if plain == tuple(map(type, row)) else _row(kind, names, converters, row) for row in rows]

    def _moments(
        self, kind: type[Row], table: str, max_points: int, order: str, since: float | None = None
    ) -> list[Row]:
        span = self._span(table, since)
        if span is None:
            return []
        bins = f"CAST((at - {span[0]!r}) / {_width(span, max_points)!r} AS INTEGER)"
        chosen = f"SELECT max(at) FROM {table} WHERE at >= {span[0]!r} GROUP BY {bins}"
        return self._points(kind, table, f"WHERE at IN ({chosen}) ORDER BY at, {order}", max_points * _MAX_PER_MOMENT)


def _width(span: tuple[float, float], max_points: int) -> float:
    """Return the width of an interval.

    It is slightly larger than the span requires, so that the last moment is in the last interval.
    """
    return max((span[1] - span[0]) / max(1, max_points) * (1 + 1e-9), 1e-6)


def _with_peak(total: points.Total, peak_bytes: int) -> points.Total:
    return total._replace(peak_bytes=max(peak_bytes, total.used_bytes))


@functools.cache
def _types_of(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _row(kind: type[Row], names: list[str], converters: list[Callable[[Any], Any]], row: tuple[Any, ...]) -> Row:
    """Convert values to the declared types, whatever the database holds; NULL becomes the default."""
    values = zip(names, converters, row, strict=False)
    return kind(**{name: convert(value) for name, convert, value in values if value is not None})


def _int(value: Any) -> int:
    if type(value) is int:
        return value
    number = _float(value)
    return 0 if number is None else int(number)


def _float(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def _text(value: Any) -> str:
    return str(value)[:_MAX_TEXT]


def _object(value: Any) -> dict[str, Any]:
    try:
        parsed = json.loads(str(value)[:1_000_000])
    except (ValueError, RecursionError):
        return {"text": _text(value)}
    return parsed if isinstance(parsed, dict) else {"text": _text(value)}


_CONVERT: dict[Any, Callable[[Any], Any]] = {
    int: _int,
    float: lambda value: _float(value) or 0.0,
    float | None: _float,
    str: _text,
    dict[str, Any]: _object,
    dict[str, int]: lambda value: {str(k): _int(v) for k, v in _object(value).items()},
}
