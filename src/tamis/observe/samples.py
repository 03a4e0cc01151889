"""The last failure of a run, from its database: what a message at its end can say of the stage that raised."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from tamis.observe.series import quoted


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
        with contextlib.closing(sqlite3.connect(f"file:{quoted(path)}?mode=ro", uri=True, timeout=1.0)) as db:
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
