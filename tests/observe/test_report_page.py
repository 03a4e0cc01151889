"""The charts and tables of report.html, from a run directory that has everything; and its size, whatever that holds."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path

from tamis.observe.report import write_report
from tests.support.made_run import make_run, manifest
from tests.support.report_page import Page
from tests.support.run_dirs import run_dir_path

HOSTILE = "<script>alert(1)</script>"


def headings(path: Path) -> list[str]:
    return re.findall("<h2>([^<]*)</h2>", path.read_text(encoding="utf-8"))


def test_everything_there_is(tmp_path: Path) -> None:
    path = write_report(make_run(run_dir_path(tmp_path / "out"), seconds=60, n_gpus=1, finished=True))
    assert headings(path) == ["Flow", "Rules", "Composition", "Run", "Alerts", "Settings and environment"]
    parts = set(re.findall("<h3>([^<]*)</h3>|<summary>([^<]*)</summary>", path.read_text(encoding="utf-8")))
    for part in (
        "The ledger: every stage",
        "Length of documents",
        "What held this run back",
        "Memory against the budget",
        "Partition map",
        "Documents per second, by stage",
        "Input per second",
        "Queue and scratch",
        "GPUs",
        "Stages",
        "Predicted and measured",
        "What the supervisor did",
        "Last events",
        "Settings and their reasons",
        "Scores that no rule compares",
        "Environment",
    ):
        assert {(part, ""), ("", part)} & parts, part
    page = Page(path)
    for part in (
        "words per document",
        "610,000 · 6.8%",
        "urn:doc:610000",
        "language_score (language)",
        "12 are no numbers and not shown.",
        "--memory 2GB",
    ):
        assert part in page.text
    assert page.is_harmless
    assert path.stat().st_size < 400_000


def test_predicted_and_measured(tmp_path: Path) -> None:
    text = Page(write_report(make_run(tmp_path, seconds=60, finished=True))).text
    assert "peak memory1.65 GB1.3 GB to 1.9 GB1.58 GByes" in text
    assert "time140.0 s90.0 s to 260.5 s60.0 sno" in text
    assert "From the machine profile: 3 earlier runs of this pipeline on this machine." in text
    span = {"low": 5e8, "expected": 1e9, "high": 2e9}
    (tmp_path / "prediction.json").write_text(
        json.dumps({"peak_bytes": span, "seconds": "x", "scratch_bytes": {"low": 3}, "basis": HOSTILE})
    )
    page = Page(write_report(tmp_path))
    assert "peak memory1 GB500 MB to 2 GB1.58 GB" in page.text
    assert page.is_harmless
    (tmp_path / "prediction.json").unlink()
    assert "Predicted and measured" not in Page(write_report(tmp_path)).text


def test_evidence_for_a_setting(tmp_path: Path) -> None:
    make_run(tmp_path, seconds=2)
    entry = {
        "name": "pool",
        "value": 5,
        "chosen_by": "default",
        "why": "so",
        "evidence": {"pool_bytes": 2_000_000, "share": 0.88, HOSTILE: HOSTILE},
    }
    (tmp_path / "settings.json").write_text(json.dumps({"settings": [entry]}))
    page = Page(write_report(tmp_path))
    assert "pool_bytes 2 MB, share 0.88" in page.text
    assert page.is_harmless


def test_an_interrupted_run_has_its_charts(tmp_path: Path) -> None:
    path = write_report(make_run(tmp_path, seconds=60))
    assert "Memory against the budget" in Page(path).text
    assert "not finished" in Page(path).text


def test_it_can_always_be_mailed(tmp_path: Path) -> None:
    """Names as long as a database allows, in every place, by the thousand."""
    folder = make_run(tmp_path, seconds=20, n_workers=60, n_gpus=16, finished=True)
    long = HOSTILE * 400
    db = sqlite3.connect(folder / "run.sqlite")
    for i in range(300):
        db.execute(
            "INSERT INTO stages SELECT at, ? || ?, position + ?, n_in, n_out, n_dropped, in_bytes, seconds, cpu_s, "
            "peak_bytes, 0 FROM stages WHERE stage = 'read'",
            (i, long, i),
        )
        db.execute("INSERT INTO events VALUES (?, ?, ?)", (1e9, long, json.dumps({"text": long})))
        db.execute("INSERT INTO alerts VALUES (?, ?, ?, ?, '{}')", (1e9, long, long, long))
    db.execute("UPDATE gpus SET name = ?", (long,))
    db.execute("UPDATE samples SET workers = ?", (json.dumps({f"{i}{long[:200]}": 1e6 for i in range(100)}),))
    db.commit()
    db.close()
    about = manifest(20)
    stage = about["ledger"]["stages"][0]
    stage["dropped"] = {f"{i}{long}": [5, "0" * 32, 10, [[0, 1, long], [0, 2, long]]] for i in range(2000)}
    about["ledger"]["stages"] = [
        {**stage, "name": f"{i}{long}", "dropped": stage["dropped"] if i == 0 else {}} for i in range(300)
    ]
    about["histograms"] = [
        {"stage": long, "name": f"{i}{long}", "kind": "score", "bins": [[j / 64, (j + 1) / 64, j] for j in range(64)]}
        for i in range(500)
    ]
    about["counters"] = {f"{i}{long}": long for i in range(3000)}
    about["message"] = long
    (folder / "manifest.json").write_text(json.dumps(about))
    (folder / "settings.json").write_text(
        json.dumps({"settings": [dict.fromkeys(("name", "value", "chosen_by", "why"), long)] * 3000})
    )
    (folder / "quarantine").mkdir()
    bad = {"file": long, "offset": 1, "length": 2, "unit": long, "reason": "", "stage": long, "n": 1, "raw": long}
    (folder / "quarantine/quarantine-0.jsonl").write_text(
        "".join(json.dumps({**bad, "reason": f"{i}{long}"}) + "\n" for i in range(200))
    )
    path = write_report(folder)
    assert path.stat().st_size < 2_000_000
    page = Page(path)
    assert page.is_harmless
    assert "Environment" in page.text
