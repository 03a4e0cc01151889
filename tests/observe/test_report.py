"""report.html: complete for a real run, harmless for hostile text, clear about damage."""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path

import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.cli.jobs.run import with_stage_failure
from tamis.engine.ledger import Ledger, StageBook
from tamis.engine.monitor.database import RunDatabase
from tamis.engine.schema import EventKind
from tamis.errors import TamisError
from tamis.observe.report import write_report
from tamis.observe.series import SeriesError, open_series
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter
from tamis.stores.run_locations import output_of_run_dir
from tests.support.report_page import Page
from tests.support.run_dirs import run_dir_path

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / f"in/{HOSTILE.replace('/', '')}.jsonl").write_text('{"a": 1}\n{"a": 2}\n' + HOSTILE + "\n")
    stages = [JsonlReader(str(tmp_path / "in")), JsonlWriter(str(tmp_path / "out"))]
    Pipeline("r", stages=stages).execute(InProcessExecutor(), quarantine_limit="100%", memory="4GB")
    return run_dir_path(tmp_path / "out")


def test_a_run(run_dir: Path) -> None:
    path = write_report(run_dir)
    assert path == run_dir / "report.html"
    page = Page(path)
    assert "finished" in page.text
    for part in ("Flow", "Quarantine", "Settings and their reasons", "What the supervisor did", "Environment"):
        assert part in page.text
    assert "not valid JSON" in page.text
    assert HOSTILE in page.text
    assert page.is_harmless
    assert not (run_dir / "report.html.tmp").exists()


def test_hostile_values_everywhere(run_dir: Path) -> None:
    manifest = json.loads((run_dir / "manifest.json").read_text())
    manifest |= {
        "message": HOSTILE,
        "run_id": HOSTILE,
        "status": HOSTILE,
        "counters": {HOSTILE: HOSTILE},
        "exit_code": HOSTILE,
    }
    (run_dir / "manifest.json").write_text(json.dumps(manifest))
    record = json.loads((run_dir / "run.json").read_text())
    record |= {"name": HOSTILE, "run_id": HOSTILE, "message": HOSTILE, "exit_code": 1, "duplicate_stages": [HOSTILE]}
    record["passes"] = [{"label": HOSTILE, "title": HOSTILE, "seconds": 1.0}] * 3
    (run_dir / "run.json").write_text(json.dumps(record))
    (run_dir / "settings.json").write_text(
        json.dumps({"settings": [dict.fromkeys(("name", "value", "chosen_by", "why"), HOSTILE), 7]})
    )
    page = Page(write_report(run_dir))
    assert page.is_harmless
    assert page.text.count(HOSTILE) >= 8


def test_what_was_dropped(run_dir: Path) -> None:
    manifest = json.loads((run_dir / "manifest.json").read_text())
    ledger = Ledger.from_dict(manifest["ledger"])
    ledger.stages = [StageBook(HOSTILE)]
    ledger.stages[0].drop("too short", 2, 1, 12_345_678, [(0, 9, None), (0, 30, HOSTILE)])
    (run_dir / "manifest.json").write_text(json.dumps({**manifest, "ledger": ledger.to_dict()}))
    page = Page(write_report(run_dir))
    assert page.is_harmless
    place = f"{HOSTILE.replace('/', '')}.jsonl:9"
    for part in ("Rules", "too short", "12.3 MB", place, f"tamis why {output_of_run_dir(run_dir)} DOCUMENT"):
        assert part in page.text
    about = json.loads((run_dir / "report.json").read_text())
    assert [about[k] for k in ("status", "exit_code", "n_records", "n_written", "n_dropped", "n_quarantined")] == [
        "finished",
        0,
        3,
        2,
        2,
        1,
    ]
    assert about["drops"] == [
        {
            "stage": HOSTILE,
            "reason": "too short",
            "documents": 2,
            "bytes": 12_345_678,
            "examples": [place, HOSTILE],
        }
    ]
    (run_dir / "plan.json").write_text("{")
    assert "the run directory is damaged" in Page(write_report(run_dir)).text
    assert json.loads((run_dir / "report.json").read_text())["drops"][0]["examples"] == [HOSTILE]


def test_nothing_dropped_nothing_shown(run_dir: Path) -> None:
    assert "tamis why" not in Page(write_report(run_dir)).text
    assert json.loads((run_dir / "report.json").read_text())["drops"] == []


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"\xff\xfe", b'{"ledger": {}}', b'{"ledger": 3}', b'{"settings": 3}']
)
@pytest.mark.parametrize("name", ["manifest.json", "settings.json", "run.sqlite", "quarantine/quarantine-x.jsonl"])
def test_damage_is_named_and_does_no_harm(run_dir: Path, name: str, content: bytes) -> None:
    (run_dir / name).write_bytes(content)
    page = Page(write_report(run_dir))
    assert "Environment" in page.text


def test_damage_has_a_message(run_dir: Path) -> None:
    (run_dir / "manifest.json").write_text("{")
    (run_dir / "run.sqlite").write_bytes(b"no database at all" * 100)
    text = Page(write_report(run_dir)).text
    assert "manifest.json cannot be read" in text
    assert "run.sqlite cannot be read" in text
    with pytest.raises(SeriesError):
        open_series(run_dir)
    assert str(with_stage_failure(TamisError("it failed"), str(run_dir), 0.0)) == "it failed"


def test_the_last_failure_of_a_run_is_reported_where_its_database_can_be_read(tmp_path: Path) -> None:
    assert str(with_stage_failure(TamisError("it failed"), str(tmp_path / "gone"), 0.0)) == "it failed"
    db = RunDatabase(str(tmp_path / "run.sqlite"))
    db.event(EventKind.FAILED, {"kind": "error", "stage": "first", "error": "ValueError: old"})
    db.event(EventKind.FAILED, {"kind": "error", "stage": "rules", "error": "ValueError: no"})
    db.event(EventKind.FAILED, {"kind": "memory", "stage": "other", "error": "not enough"})
    db.close()
    told = with_stage_failure(TamisError("it failed"), str(tmp_path), 0.0, ["more"])
    assert str(told).splitlines() == [
        "it failed",
        "the last failure: stage 'rules': ValueError: no",
        f"the log: {tmp_path / 'worker.log'}",
        "more",
    ]
    assert "the last failure" not in str(
        with_stage_failure(TamisError("it failed: ValueError: no"), str(tmp_path), 0.0)
    )
    assert str(with_stage_failure(TamisError("it failed"), str(tmp_path), time.time() + 60)) == "it failed"


@pytest.mark.parametrize(
    "data", ["{", "[1]", "3", "null", '{"kind": "error"}', '{"kind": "error", "error": null, "stage": []}']
)
def test_events_that_make_no_sense_do_no_harm(tmp_path: Path, data: str) -> None:
    db = RunDatabase(str(tmp_path / "run.sqlite"))
    db.close()
    with sqlite3.connect(tmp_path / "run.sqlite") as there:
        there.execute("INSERT INTO events VALUES (?, 'failed', ?)", (1e9, data))
    there.close()
    assert str(with_stage_failure(TamisError("it failed"), str(tmp_path), 0.0)).startswith("it failed")


def test_an_unfinished_run(tmp_path: Path) -> None:
    (run_dir_path(tmp_path)).mkdir()
    assert "not finished" in Page(write_report(run_dir_path(tmp_path))).text
    about = json.loads((run_dir_path(tmp_path) / "report.json").read_text())
    assert (about["status"], about["n_records"], about["drops"]) == ("not finished", None, [])


def test_no_run_directory(tmp_path: Path) -> None:
    with pytest.raises(TamisError, match="is not a run directory"):
        write_report(tmp_path / "nothing")
