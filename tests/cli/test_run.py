"""`tamis run` and `tamis resume`, as processes: what they print, what they leave behind, how they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.run_dirs import run_dir_path
from tests.support.warm_python import run_python

SRC = Path(__file__).parents[2] / "src"
RECIPE = """
name: t
input: in
stages:
  - _target_: tamis.stages.text.io.reader.JsonlReader
    file_paths: ${input}
  - _target_: %s
  - _target_: tamis.stages.text.io.writer.JsonlWriter
    path: out
settings:
  memory: 512MB
"""
STAGES = """
import time
from pathlib import Path
from tamis import ProcessingStage

class Even(ProcessingStage):
    name = "even"
    def process(self, task):
        return task.filter([v % 2 == 0 for v in task.column("n").to_pylist()])

class Failing(ProcessingStage):
    name = "failing"
    def process(self, task):
        raise ValueError("no such luck")

class BadSetup(ProcessingStage):
    name = "bad_setup"
    def setup(self, worker_metadata=None):
        raise RuntimeError("no model")
    def process(self, task):
        return task

class Held(ProcessingStage):
    name = "held"
    def process(self, task):
        while "text" not in task.get_columns() and not Path("released").exists():
            time.sleep(0.01)
        return task
"""


def tamis(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    return run_python("-m", "tamis.cli.start", *args, env=env, cwd=cwd)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"n": i, "text": f"document {i}"}) for i in range(100)]
    (tmp_path / "in" / "a.jsonl").write_text("\n".join([*lines, "", "{broken"]) + "\n")
    (tmp_path / "user_stages.py").write_text(STAGES)
    for name in ("Even", "Failing", "BadSetup", "Held"):
        (tmp_path / f"{name.lower()}.yaml").write_text(RECIPE % f"user_stages.{name}")
    return tmp_path


def written(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(output.glob("*.jsonl")) for line in path.read_text().splitlines()]


def test_a_run_says_what_it_did(place: Path) -> None:
    done = tamis("run", "even.yaml", "--allow-module", "user_stages", "--quiet", cwd=place)
    assert done.stderr == ""
    assert done.returncode == 0
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["read", "101", "100", "1", "quarantined"] in rows
    assert ["even", "100", "50", "50"] in rows
    assert ["written", "50"] in rows
    n_bytes = sum(len(json.dumps({"n": i, "text": f"document {i}"})) for i in range(1, 100, 2))
    assert ["even", "50", f"{n_bytes / 1000:.2f}", "kB", "a.jsonl:31,", "a.jsonl:93,", "a.jsonl:155"] in rows
    assert f"why one of them went: tamis why {place}/out a.jsonl:31" in done.stdout
    assert "1 blank line skipped" in done.stdout
    assert f"output: {place}/out (1 file" in done.stdout
    assert f"report: {run_dir_path(place / 'out')}/report.html" in done.stdout
    assert "peak memory" in done.stdout
    assert [d["n"] for d in written(place / "out")] == list(range(0, 100, 2))
    assert "user_stages" in json.loads((run_dir_path(place / "out") / "command.json").read_text())["modules"]


def test_the_same_command_again_does_nothing(place: Path) -> None:
    command = ("run", "even.yaml", "--allow-module", "user_stages")
    assert tamis(*command, cwd=place).returncode == 0
    before = {p: p.stat().st_mtime_ns for p in (place / "out").glob("*.jsonl")}
    again = tamis(*command, cwd=place)
    assert again.returncode == 0
    assert again.stdout.startswith("finished earlier, nothing to do:")
    assert {p: p.stat().st_mtime_ns for p in (place / "out").glob("*.jsonl")} == before
    resumed = tamis("resume", "out", "--allow-module", "user_stages", cwd=place)
    assert resumed.stdout.startswith("finished earlier, nothing to do:")
    fresh = tamis(*command, "--fresh", "--json", cwd=place)
    assert json.loads(fresh.stdout)["status"] == "finished"


def test_json_is_one_object_and_the_command_line_wins(place: Path) -> None:
    done = tamis("run", "even.yaml", "--allow-module", "user_stages", "--memory", "600MB", "--json", cwd=place)
    about = json.loads(done.stdout)
    assert done.stderr == ""
    wanted = (
        "status",
        "exit_code",
        "n_records",
        "n_written",
        "n_dropped",
        "n_quarantined",
        "n_blank_lines",
        "budget_bytes",
    )
    assert [about[k] for k in wanted] == ["finished", 0, 101, 50, 50, 1, 1, 600_000_000]
    assert about["stages"][0]["dropped"] == {"even": 50}
    examples = ["a.jsonl:31", "a.jsonl:93", "a.jsonl:155"]
    (drops,) = about["drops"]
    assert (drops["stage"], drops["reason"], drops["documents"], drops["examples"]) == ("even", "even", 50, examples)
    assert 0 < about["peak_bytes"] <= 600_000_000


def test_an_exceeded_quarantine_limit_is_exit_code_3(place: Path) -> None:
    done = tamis("run", "even.yaml", "--allow-module", "user_stages", "--quarantine-limit", "0.1%", cwd=place)
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].startswith("incomplete: 1 of 101 records are in quarantine")
    assert len(written(place / "out")) == 50
    again = tamis("run", "even.yaml", "--allow-module", "user_stages", "--quarantine-limit", "0.1%", cwd=place)
    assert again.returncode == 3
    assert "finished earlier" in again.stdout


@pytest.mark.parametrize(
    ("recipe", "code", "expected"),
    [
        ("failing.yaml", 7, "stage 'failing' fails on each of the first 20 documents: ValueError: no such luck"),
        ("badsetup.yaml", 7, "stage 'bad_setup (its setup)': RuntimeError: no model"),
    ],
)
def test_a_failing_stage_is_named_with_one_traceback(place: Path, recipe: str, code: int, expected: str) -> None:
    done = tamis("run", recipe, "--allow-module", "user_stages", "--quarantine-limit", "1%", cwd=place)
    assert done.returncode == code
    assert expected in done.stderr
    assert done.stderr.count("Traceback") == 1
    log = run_dir_path(place / "out") / "worker.log"
    assert str(log) in done.stderr
    assert "Traceback" in log.read_text()


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["nothing.yaml"], 2, "no such recipe: nothing.yaml"),
        (["even.yaml"], 2, "allow it with --allow-module user_stages"),
        (["copy"], 2, "has no value yet; set it with --set"),
        (["copy", "--set", "input"], 2, "expected KEY=VALUE"),
        (["copy", "--set", "input=none", "--set", "output=out"], 2, "no such file or folder: none"),
        (
            ["copy", "--set", "input=in", "--set", "output=out", "--memory", "20MB"],
            4,
            "the smallest that works here is",
        ),
        (["copy", "--set", "input=in", "--set", "output=in"], 5, "is the output folder too"),
        (["copy", "--set", "input=in", "--set", "output=out", "--memory", "much"], 2, "cannot read 'much' as a size"),
        (["copy", "--set", "input=in", "--set", "output=out", "--sample", "0%"], 2, "must be above 0"),
    ],
)
def test_mistakes_are_one_message_and_an_exit_code(place: Path, args: list[str], code: int, message: str) -> None:
    done = tamis("run", *args, cwd=place)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_failure_with_json_is_json_too(place: Path) -> None:
    done = tamis("run", "copy", "--set", "input=none", "--set", "output=out", "--json", cwd=place)
    about = json.loads(done.stdout)
    assert (done.returncode, about["status"], about["exit_code"]) == (2, "failed", 2)


def test_a_recipe_without_writer_needs_a_folder(place: Path) -> None:
    (place / "r.yaml").write_text(
        "stages:\n  - _target_: tamis.stages.text.io.reader.JsonlReader\n    file_paths: in\n"
    )
    refused = tamis("run", "r.yaml", cwd=place)
    assert (refused.returncode, "--run-dir" in refused.stderr) == (2, True)
    done = tamis("run", "r.yaml", "--run-dir", "kept", "--json", cwd=place)
    assert (done.returncode, json.loads(done.stdout)["n_written"]) == (0, 100)


def test_ctrl_c_keeps_what_is_committed_and_leaves_no_process(place: Path) -> None:
    for i in range(20):
        (place / "in" / f"b{i:02d}.jsonl").write_text(json.dumps({"n": i}) + "\n")
    (place / "held.yaml").write_text(
        (place / "held.yaml").read_text().replace("${input}", "${input}\n    files_per_partition: 1")
    )
    command = [sys.executable, "-m", "tamis.cli.start", "run", "held.yaml", "--allow-module", "user_stages"]
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    process = subprocess.Popen(command, cwd=place, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list((place / "out").glob("*.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.endswith("interrupted; everything committed so far is kept; run the same command again to resume\n")
    assert "Traceback" not in errors
    assert _servers_of(process.pid) == []
    n_before = len(written(place / "out"))
    assert 0 < n_before < 120
    assert (run_dir_path(place / "out") / "report.html").exists()
    (place / "released").touch()
    resumed = tamis("resume", "out", "--allow-module", "user_stages", "--json", cwd=place)
    about = json.loads(resumed.stdout)
    assert (about["status"], about["n_written"], about["n_quarantined"]) == ("finished", 120, 1)
    assert sorted(d["n"] for d in written(place / "out")) == sorted([*range(100), *range(20)])


def _servers_of(pid: int) -> list[str]:
    """Forking servers that name `pid` as their supervisor."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            args = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(b"tamis.backends.forkserver" in a for a in args) and str(pid).encode() in args:
            found.append(folder.name)
    return found


def test_resume_needs_the_modules_allowed_again_and_finds_its_folder(
    place: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert tamis("run", "even.yaml", "--allow-module", "user_stages", cwd=place).returncode == 0
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    refused = tamis("resume", str(place / "out"), cwd=elsewhere)
    assert (refused.returncode, "--allow-module user_stages" in refused.stderr) == (2, True)
    done = tamis("resume", str(place / "out"), "--allow-module", "user_stages", cwd=elsewhere)
    assert (done.returncode, "finished earlier" in done.stdout) == (0, True)


def test_resume_of_something_else(place: Path) -> None:
    assert "contains no run of Tamis" in tamis("resume", "in", cwd=place).stderr
    (run_dir_path(place / "in")).mkdir()
    (run_dir_path(place / "in") / "command.json").write_text('{"version": 2, "cwd": "relative"}')
    damaged = tamis("resume", "in", cwd=place)
    assert (damaged.returncode, "is damaged (cwd: expected an absolute path)" in damaged.stderr) == (5, True)


def test_the_supervisor_imports_nothing_heavy(place: Path) -> None:
    code = (
        "import sys; from tamis.cli.jobs.jobs import RecipeJob; from tamis.cli.jobs.request import Request; from "
        "tamis.cli.jobs.run import execute; "
        "execute(Request(RecipeJob('copy', {'input': 'in', 'output': 'out'}), {'memory': '512MB'}), quiet=True); "
        "print([m for m in ('numpy', 'pyarrow', 'numba', 'pandas', 'backports.zstd', 'fsspec', 'rich') if m in "
        "sys.modules])"
    )
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, cwd=place, timeout=100, check=False
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
