"""The pieces of the dashboard's page: complete, well-formed, and harmless whatever the run directory holds."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path

import pytest

from tamis.observe.dashboard.fragments import active, fragments
from tamis.observe.dashboard.watching import Watcher
from tamis.observe.points import AlertPoint
from tamis.observe.snapshot import read_snapshot
from tests.support.made_run import make_run
from tests.support.markup_check import parsed

HOSTILE = "<script>alert(1)</script>"


def made(folder: Path) -> dict[str, str]:
    found = fragments(read_snapshot(folder))
    for html in found.values():
        parsed(html)
    return found


def words(html: str) -> str:
    return " ".join("".join(t for t in parsed(html).itertext()).split())


def test_a_live_run(tmp_path: Path) -> None:
    found = made(make_run(tmp_path, seconds=60, n_gpus=2))
    assert [k for k, v in found.items() if not v] == ["passes", "all-memory", "nodes", "lengths"]
    assert words(found["head"]) == "web corpus, Englishrunning1 min"
    assert "throughput language: 41,000 documents/s" in words(found["notices"])
    assert re.fullmatch("62.0% of 48 GB, 3[678] s left", words(found["progress"]))
    assert "redact_pii" in words(found["stages"])
    assert "worker 4" in words(found["workers"])
    assert "GPU 1: H100 80GB" in words(found["gpus"])
    assert "--memory 2GB" in words(found["settings"])


def test_a_finished_run(tmp_path: Path) -> None:
    found = made(make_run(tmp_path, seconds=60, finished=True, ended_at=1_700_000_000.0))
    assert [k for k, v in found.items() if not v] == [
        "notices",
        "progress",
        "passes",
        "all-memory",
        "gpus",
        "nodes",
        "dropped",
    ]
    assert "words per document610,000 · 6.8%" in words(found["funnel"])


def test_a_killed_run_and_none_at_all(tmp_path: Path) -> None:
    found = made(make_run(tmp_path / "killed", seconds=20, ended_at=1_700_000_000.0))
    assert "No sample for a while" in found["notices"]
    found = made(tmp_path / "none")
    assert "Waiting for the first sample" in found["progress"]
    assert (found["memory"], found["cards"], found["map"]) == ("", "", "")


def test_hostile_text_everywhere(tmp_path: Path) -> None:
    folder = make_run(tmp_path, seconds=20, n_gpus=1, finished=True)
    db = sqlite3.connect(folder / "run.sqlite")
    for table in ("about", "samples", "processes", "stages", "gpus", "alerts", "cells", "units", "drops", "events"):
        columns = [row[1:3] for row in db.execute(f"PRAGMA table_info({table})")]
        for name, kind in columns:
            if kind == "TEXT" and name not in ("key",):
                value = json.dumps(HOSTILE) if table == "about" else HOSTILE
                db.execute(f"UPDATE OR REPLACE {table} SET {name} = ?", (value,))
    db.execute("UPDATE samples SET workers = ?", (json.dumps({HOSTILE: 5e6, "2": "x", "3": None}),))
    db.commit()
    db.close()
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest |= {"message": HOSTILE, "status": HOSTILE, "run_id": HOSTILE, "exit_code": 3}
    manifest["histograms"] = [
        {"stage": HOSTILE, "name": HOSTILE, "kind": "length_in", "bins": [[1, 2, 3], HOSTILE, [1], None]},
        3,
    ]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "settings.json").write_text(
        json.dumps({"settings": [dict.fromkeys(("name", "value", "chosen_by", "why"), HOSTILE), 7]})
    )
    found = made(folder)
    assert not any("<script" in html for html in found.values())
    assert HOSTILE in words(found["head"]) + words(found["events"])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -(2**62), 2**62, "text", None, b"\xff"])
def test_nonsense_in_every_number(tmp_path: Path, value: object) -> None:
    folder = make_run(tmp_path, seconds=20, n_gpus=1)
    db = sqlite3.connect(folder / "run.sqlite")
    for table in ("samples", "processes", "stages", "gpus", "alerts", "cells", "units", "events"):
        for _, name, kind, *_ in db.execute(f"PRAGMA table_info({table})").fetchall():
            if kind in ("INTEGER", "REAL") and name != "cell":
                db.execute(f"UPDATE {table} SET {name} = ? WHERE rowid % 3 = 0", (value,))
    db.commit()
    db.close()
    made(folder)


def test_active_alerts() -> None:
    alerts = [AlertPoint(1, "a", "warning"), AlertPoint(2, "b", "critical"), AlertPoint(3, "a", "resolved")]
    assert [a.rule for a in active(alerts)] == ["b"]


def test_only_what_changed_is_sent(tmp_path: Path) -> None:
    folder = make_run(tmp_path, seconds=20)
    watcher = Watcher(folder)
    first = watcher.news("all", "", 0.0)
    assert len(first["fragments"]) == 24
    assert watcher.news("all", first["version"], 100.0)["fragments"] == {}
    (folder / "settings.json").write_text('{"settings": []}')
    assert watcher.news("all", first["version"], 100.1)["fragments"] == {}  # too soon to look again
    second = watcher.news("all", first["version"], 200.0)
    assert second["fragments"] == {"settings": ""}
    assert len(watcher.news("all", "0.0", 201.0)["fragments"]) == 24
    assert len(watcher.news("all", "nonsense." + "9" * 50, 201.0)["fragments"]) == 24
    assert watcher.news("60", "", 300.0)["fragments"]["memory"] != ""
    assert watcher.news("../../etc", "", 300.0)["fragments"].keys() == first["fragments"].keys()
