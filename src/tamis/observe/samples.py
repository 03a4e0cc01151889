"""Memory samples and events from a run's database, in bounded numbers."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

MAX_POINTS = 600
MAX_EVENTS = 60
_COUNTS = ("documents", "written", "dropped", "quarantined")


@dataclass
class Samples:
    """(time in s, bytes in use) over the run, and what happened."""

    points: list[tuple[float, int]] = field(default_factory=list)
    budget_bytes: int = 0
    peak_bytes: int = 0
    last: dict[str, int] = field(default_factory=dict)
    events: list[tuple[float, str, str]] = field(default_factory=list)


def read_samples(path: Path, problems: list[str]) -> Samples:
    """Nothing when there is no database; a damaged one is named in `problems`."""
    samples = Samples()
    if not path.exists():
        return samples
    try:
        with contextlib.closing(sqlite3.connect(f"file:{_quoted(path)}?mode=ro", uri=True, timeout=1.0)) as db:
            _read(db, samples)
    except (sqlite3.Error, TypeError, ValueError) as exc:
        problems.append(f"run.sqlite cannot be read ({exc})")
    return samples


@dataclass(frozen=True)
class Failure:
    stage: str
    error: str
    trace: str


def last_failure(path: Path, since_s: float) -> Failure | None:
    """The last time since then that something raised in a worker; None if none did, or nobody knows."""
    if not path.exists():
        return None
    try:
        with contextlib.closing(sqlite3.connect(f"file:{_quoted(path)}?mode=ro", uri=True, timeout=1.0)) as db:
            rows = db.execute(
                "SELECT data FROM events WHERE kind = 'failed' AND at >= ? ORDER BY at DESC LIMIT 50", (since_s,)
            ).fetchall()
        for (data,) in rows:
            facts = json.loads(data)
            if facts.get("kind") == "error":
                return Failure(
                    str(facts.get("stage") or ""), str(facts.get("error", "")), str(facts.get("trace") or "")
                )
    except (sqlite3.Error, ValueError, TypeError, AttributeError):
        pass
    return None


def _read(db: sqlite3.Connection, samples: Samples) -> None:
    n, first, last, peak, budget = db.execute(
        "SELECT count(*), min(at), max(at), max(used_bytes), max(budget_bytes) FROM samples"
    ).fetchone()
    if n:
        width = max((last - first) / MAX_POINTS, 1e-9)
        rows = db.execute(
            "SELECT min(at), max(used_bytes) FROM samples GROUP BY CAST((at - ?) / ? AS INTEGER) ORDER BY 1",
            (first, width),
        )
        samples.points = [(float(at - first), int(used)) for at, used in rows]
        samples.peak_bytes, samples.budget_bytes = int(peak), int(budget)
        counts = db.execute(f"SELECT {', '.join(_COUNTS)} FROM samples ORDER BY at DESC LIMIT 1").fetchone()
        samples.last = {name: int(value) for name, value in zip(_COUNTS, counts, strict=True)}
    rows = db.execute("SELECT at, kind, data FROM events ORDER BY at DESC LIMIT ?", (MAX_EVENTS,))
    samples.events = [(float(at), str(kind), _text(str(data))) for at, kind, data in rows][::-1]


def _text(data: str) -> str:
    """The sentence of an event, or its facts; a traceback stays in the database."""
    try:
        facts = json.loads(data)
    except ValueError:
        return data
    if not isinstance(facts, dict):
        return data
    if facts.get("text"):
        return str(facts["text"])
    return ", ".join(f"{k}: {v}" for k, v in facts.items() if k != "trace" and v is not None)


def _quoted(path: Path) -> str:
    return str(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
