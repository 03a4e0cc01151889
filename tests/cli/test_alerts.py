"""Alerts of real runs: a rule fires, its command and webhook are called, and a remedy stops the run."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.run_dirs import run_dir_path
from tests.support.slow_run import recipe, stages
from tests.support.warm_python import run_python

SRC = Path(__file__).parents[2] / "src"
RECIPE = recipe("t", "files_per_partition: 1", "512MB")
STAGES = stages(0.4)
WORKFLOW = """
name: d
workflow:
  _target_: tamis.stages.deduplication.exact.workflow.ExactDeduplicationWorkflow
  input_path: in
  output_path: unique
  input_filetype: jsonl
  perform_removal: true
  max_source_loss: 1
settings: {memory: 512MB}
alerts:
  rules:
    full: {measure: memory, above: 1%, for: 0s}
"""
N_FILES = 12
KEEP = """
import json, os, sys
alert = json.load(sys.stdin)
with open("told.jsonl", "a") as file:
    file.write(json.dumps(alert) + "\\n")
"""


def tamis(*args: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(SRC), "XDG_CONFIG_HOME": str(cwd / "config"), **env}
    env.pop("TAMIS_ALERTS", None)
    return run_python("-m", "tamis.cli.start", *args, env=env, cwd=cwd)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for i in range(N_FILES):
        (tmp_path / "in" / f"{i:02}.jsonl").write_text(json.dumps({"n": i, "text": f"document {i}"}) + "\n")
    (tmp_path / "user_stages.py").write_text(STAGES)
    (tmp_path / "r.yaml").write_text(RECIPE)
    (tmp_path / "keep.py").write_text(KEEP)
    return tmp_path


def rules(place: Path, text: str, name: str = "mine.yaml") -> str:
    (place / name).write_text(text)
    return name


def kept(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (place / "told.jsonl").read_text().splitlines()]


def in_database(place: Path) -> list[tuple[str, str, str, str]]:
    db = sqlite3.connect(run_dir_path(place / "out") / "run.sqlite")
    try:
        return db.execute("SELECT rule, level, text, data FROM alerts ORDER BY at").fetchall()
    finally:
        db.close()


def written(place: Path) -> list[int]:
    return sorted(
        json.loads(line)["n"] for path in (place / "out").glob("*.jsonl") for line in path.read_text().splitlines()
    )


RUN = ("run", "r.yaml", "--allow-module", "user_stages", "--file-size", "partition")


def test_an_alert_reaches_a_command_the_log_the_terminal_and_the_database_and_stops_the_run(place: Path) -> None:
    (place / "in" / "00.jsonl").write_text('{"n": 0, "text": "document 0"}\n{broken\n')
    own = f"""
rules:
  tiny: {{measure: quarantine, above: 0.01%, level: critical, to: [log, terminal, script], do: stop, say: "let it be"}}
sinks:
  script: {{command: [{sys.executable}, keep.py]}}
"""
    limit = ("--quarantine-limit", "60%")
    stopped = tamis(*RUN, *limit, "--alerts", rules(place, own), cwd=place)
    assert stopped.returncode == 3, stopped.stderr
    (alert,) = kept(place)
    assert alert["text"] == (
        f"{alert['percent']:.{0 if alert['percent'] >= 10 else 1}f} % of the records are in quarantine (1 of "
        f"{alert['whole']:.0f}), "
        "limit 0.01 %: let it be [stopping the run with everything committed]"
    )
    assert (alert["rule"], alert["level"], alert["limit"], alert["unit"]) == ("tiny", "critical", 0.0001, "share")
    assert alert["run"]["output"] == str(place / "out")
    log = (run_dir_path(place / "out") / "alerts.log").read_text().splitlines()
    assert [line.split(" ", 1)[1] for line in log] == [f"CRITICAL tiny: {alert['text']}"]
    ((rule, level, text, data),) = in_database(place)
    assert (rule, level, text) == ("tiny", "critical", alert["text"])
    assert json.loads(data)["percent"] == alert["percent"]
    assert f"ALERT (critical) tiny: {alert['text']}\n" in stopped.stderr
    assert f"error: alert tiny: {alert['text']}" in stopped.stderr
    assert "run the same command again to resume" in stopped.stderr
    assert f"1 alert (1 x tiny): {run_dir_path(place / 'out')}/alerts.log" in stopped.stderr

    some = written(place)
    assert 0 < len(some) < N_FILES  # what was under way is committed too
    files = {p: p.stat().st_mtime_ns for p in (place / "out").glob("*.jsonl")}
    done = tamis(*RUN, *limit, "--json", "--alerts", "off", cwd=place)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "finished"
    assert written(place) == list(range(N_FILES))
    assert {p: p.stat().st_mtime_ns for p in files} == files  # nothing was done twice


def test_remedies_change_nothing_but_the_way(place: Path) -> None:
    own = "rules: {tiny: {measure: memory, above: 1MB, every: 1s, do: [shrink, recycle, pause 0.5s]}}"
    done = tamis(*RUN, "--quiet", "--alerts", rules(place, own), cwd=place)
    assert done.returncode == 0, done.stderr
    assert written(place) == list(range(N_FILES))
    assert "alerts (" in done.stdout
    db = sqlite3.connect(run_dir_path(place / "out") / "run.sqlite")
    texts = " ".join(row[0] for row in db.execute("SELECT data FROM events WHERE kind IN ('remedy', 'recycle')"))
    db.close()
    for part in ("partitions are at most", "an alert asked for it", "nothing new starts for 0.5 s"):
        assert part in texts


def test_a_recipe_may_not_bring_its_own_command(place: Path) -> None:
    more = f"""
alerts:
  rules:
    tiny: {{measure: memory, above: 1MB, to: [mine]}}
  sinks:
    mine: {{command: [{sys.executable}, keep.py]}}
"""
    (place / "r.yaml").write_text(RECIPE + more)
    refused = tamis(*RUN, cwd=place)
    assert refused.returncode == 2
    assert "r.yaml:18: alerts.sinks.mine: the recipe wants alerts to go to a command of its own" in refused.stderr
    assert "--allow-alert-sinks" in refused.stderr
    assert not (place / "out").exists()
    allowed = tamis(*RUN, "--allow-alert-sinks", "--json", cwd=place)
    assert allowed.returncode == 0, allowed.stderr
    about = json.loads(allowed.stdout)["alerts"]
    assert about == {
        "n": 1,
        "rules": {"tiny": 1},
        "undelivered": {},
        "log": f"{run_dir_path(place / 'out')}/alerts.log",
    }
    assert [alert["rule"] for alert in kept(place)] == ["tiny"]


def test_the_users_own_file_is_found_and_a_failing_sink_is_reported(place: Path) -> None:
    (place / "config/tamis").mkdir(parents=True)
    (place / "config/tamis/alerts.toml").write_text(
        '[rules.tiny]\nmeasure = "memory"\nabove = "1MB"\nevery = "1s"\nto = ["bad", "log"]\n'
        '[sinks.bad]\ncommand = ["no/such/program"]\n'
    )
    done = tamis(*RUN, cwd=place)
    assert done.returncode == 0, done.stderr
    complaint = "an alert did not reach bad: no/such/program cannot be started: No such file or directory"
    assert done.stderr.count(complaint) == 1
    assert (run_dir_path(place / "out") / "alerts.log").read_text().count(complaint) == 1
    assert " did not reach bad" in done.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rules: {memory: {above: 5min}}", "error: mine.yaml:1: rules.memory: above: memory is compared with a share"),
        ("rulez: {}", "error: mine.yaml:1: rulez: unknown key 'rulez'; did you mean rules?"),
    ],
)
def test_wrong_rules_are_reported_before_anything_starts(text: str, message: str, place: Path) -> None:
    done = tamis(*RUN, "--alerts", rules(place, text), cwd=place)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(message)
    assert not (place / "out").exists()
    gone = tamis(*RUN, "--alerts", "gone.yaml", cwd=place)
    assert (gone.returncode, gone.stderr) == (
        2,
        "error: gone.yaml: cannot read the alerts file: No such file or directory\n",
    )


def test_resuming_takes_rules_anew(place: Path) -> None:
    own = rules(place, "rules: {tiny: {measure: memory, above: 1MB, for: 1s, do: stop}}")
    assert tamis(*RUN, "--quiet", "--alerts", own, cwd=place).returncode == 3
    assert "alerts" not in (run_dir_path(place / "out") / "command.json").read_text()
    (place / "elsewhere").mkdir()
    again = ("resume", str(place / "out"), "--allow-module", "user_stages", "--quiet")
    assert tamis(*again, "--alerts", "../mine.yaml", cwd=place / "elsewhere").returncode == 3
    done = tamis(*again, cwd=place)
    assert done.returncode == 0, done.stderr
    assert written(place) == list(range(N_FILES))


def test_passes_of_a_deduplication_are_watched(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"text": f"document {i % 4000} " * 40}) + "\n" for i in range(8000)]
    (tmp_path / "in" / "0.jsonl").write_text("".join(lines))
    (tmp_path / "config" / "tamis").mkdir(parents=True)
    (tmp_path / "config" / "tamis" / "alerts.yaml").write_text("rules:\n  memory: {above: 1%, for: 0s}\n")
    options = ("--memory", "512MB", "--max-source-loss", "100%", "--json")
    told = tamis("dedup", "exact", "in", "out", *options, cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["alerts"]["rules"]["memory"] >= 1
    assert "of the budget" in (run_dir_path(tmp_path / "out") / "alerts.log").read_text()
    (tmp_path / "recipe.yaml").write_text(WORKFLOW)
    told = tamis("run", "recipe.yaml", "--json", "--alerts", "none.yaml", cwd=tmp_path)
    assert (told.returncode, "none.yaml" in told.stderr) == (2, True)
    (tmp_path / "config" / "tamis" / "alerts.yaml").unlink()
    told = tamis("run", "recipe.yaml", "--json", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["alerts"]["rules"] == {"full": 1}
