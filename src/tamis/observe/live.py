"""The state of a run as its database tells it now: for `tamis top`. Reads, never writes; a damaged database is a sentence."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tamis.observe.samples import _quoted

RECENT_S = 10.0
STALE_S = 10.0  # a run samples every second; after this long without one it is not running


@dataclass
class Live:
    """Bytes and counts now; rates over the last seconds."""

    status: str = "no samples yet"  # running, finished, stopped, or what is wrong
    name: str = ""
    used_bytes: int = 0
    budget_bytes: int = 0
    peak_bytes: int = 0
    level: int = 0
    documents: int = 0
    written: int = 0
    dropped: int = 0
    quarantined: int = 0
    read_bytes: int = 0
    left_bytes: int = 0
    bytes_per_s: float = 0.0
    seconds: float = 0.0
    workers: dict[str, int] = field(default_factory=dict)
    history: list[int] = field(default_factory=list)  # bytes in use, oldest first
    units: list[tuple[int, int, int, float]] = field(default_factory=list)  # worker, decoded bytes, peak, seconds
    events: list[tuple[float, str, str]] = field(default_factory=list)

    @property
    def eta_s(self) -> float | None:
        return self.left_bytes / self.bytes_per_s if self.bytes_per_s > 0 and self.left_bytes > 0 else None


def read_live(folder: Path, n_history: int = 60, now: float | None = None) -> Live:
    """`folder`: the run directory."""
    live = Live(name=_name(folder))
    path = folder / "run.sqlite"
    if not path.exists():
        return live
    try:
        with contextlib.closing(sqlite3.connect(f"file:{_quoted(path)}?mode=ro", uri=True, timeout=1.0)) as db:
            _read(db, live, n_history, time.time() if now is None else now)
    except (sqlite3.Error, TypeError, ValueError) as exc:
        live.status = f"run.sqlite cannot be read ({exc})"
        return live
    if (folder / "manifest.json").exists():
        live.status = "finished"
    return live


def _read(db: sqlite3.Connection, live: Live, n_history: int, now: float) -> None:
    rows = db.execute(
        "SELECT at, used_bytes, budget_bytes, documents, written, dropped, quarantined, read_bytes, left_bytes, level, workers "
        "FROM samples ORDER BY at DESC LIMIT ?",
        (max(n_history, 60),),
    ).fetchall()
    if rows:
        last = rows[0]
        (at, live.used_bytes, live.budget_bytes, live.documents, live.written, live.dropped) = last[:6]
        (live.quarantined, live.read_bytes, live.left_bytes, live.level) = last[6:10]
        live.workers = {str(k): int(v) for k, v in _object(last[10]).items()}
        live.history = [int(r[1]) for r in rows[:n_history]][::-1]
        earlier = next((r for r in rows if at - r[0] >= RECENT_S), rows[-1])
        if at > earlier[0] and last[7] >= earlier[7]:
            live.bytes_per_s = (last[7] - earlier[7]) / (at - earlier[0])
        first, live.peak_bytes = db.execute("SELECT min(at), max(used_bytes) FROM samples").fetchone()
        live.seconds = at - first
        live.status = "running" if now - at < STALE_S else "stopped"
    units = db.execute("SELECT worker, decoded_bytes, peak_bytes, seconds FROM units ORDER BY at DESC LIMIT 8")
    live.units = [(int(w or 0), int(d or 0), int(p or 0), float(s or 0)) for w, d, p, s in units]
    events = db.execute("SELECT at, kind, data FROM events ORDER BY at DESC LIMIT 6")
    live.events = [(float(at), str(kind), _sentence(str(data))) for at, kind, data in events][::-1]


def _object(text: str) -> dict[str, Any]:
    found = json.loads(text)
    return found if isinstance(found, dict) else {}


def _sentence(data: str) -> str:
    try:
        facts = json.loads(data)
    except ValueError:
        return data[:200]
    if isinstance(facts, dict):
        return str(facts.get("text") or facts.get("error") or facts.get("reason") or "")[:200]
    return str(facts)[:200]


def _name(folder: Path) -> str:
    try:
        plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
        return str(plan.get("name", "")) if isinstance(plan, dict) else ""
    except (OSError, ValueError):
        return ""
