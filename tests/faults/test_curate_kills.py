"""SIGKILL in every pass of a curation, then the same command with other settings: the same content hash."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.faults.fault_harness import env
from tests.faults.test_dedup_kills import SETTINGS, named, write_corpus
from tests.support.run_dirs import run_dir_path

RECIPE = """
name: killed
input: ???
output: ???
steps:
  - _target_: tamis.stages.text.filters.ScoreFilter
    filter_obj: {_target_: tamis.stages.text.filters.heuristic.WordCountFilter, min_words: 100}
  - _target_: tamis.stages.text.filters.ScoreFilter
    filter_obj: {_target_: tamis.stages.text.filters.heuristic.SubstringFilter, substring: kabana lobana, position: any}
    invert: true
  - exact_duplicates
  - fuzzy_duplicates
  - sample: {fraction: 90%}
"""
PHASES = ("keys", "decision", "texts", "write")


def start(folder: Path, output: Path, memory: str = "512MB", workers: str = "2") -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "tamis.cli.start",
        "curate",
        folder / "in",
        output,
        "--preset",
        folder / "killed.yaml",
    ]
    options = ["--memory", memory, "--workers", workers, "--blocksize", "2MB", "--quiet", "--json"]
    return subprocess.Popen(
        [*map(str, command), *options], env=env(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def is_in(phase: str, output: Path, run: int) -> bool:
    folder = run_dir_path(output)
    work = run_dir_path(folder / "curation" / "0") / "dedup"
    if phase == "decision":
        return bool(named(run, "tamis-solver"))
    if phase == "write":
        return (folder / "plan.json").exists() and not (folder / "curation.json").exists()
    name, done = ("keys-0", "task.json") if phase == "keys" else ("texts", "summary.json")
    return (run_dir_path(work / name) / "plan.json").exists() and not (work / done).exists()


def disturb(run: subprocess.Popen[str], output: Path, phase: str, victim: str, rng: random.Random) -> bool:
    """Whether the victim was killed in its phase, a random moment after that began."""
    while run.poll() is None and not is_in(phase, output, run.pid):
        time.sleep(0.002)
    time.sleep(rng.uniform(0.0, 0.03 if phase == "decision" else 0.3))
    pids = [run.pid] if victim == "driver" else named(run.pid, f"tamis-{victim}")
    if run.poll() is None and pids and is_in(phase, output, run.pid):
        os.kill(pids[0], signal.SIGKILL)
        return True
    return False


def finished(run: subprocess.Popen[str], disturbed: bool = False) -> dict[str, Any] | None:
    """Return its output; None if it, or a process it cannot do without, was killed."""
    try:
        text, _ = run.communicate(timeout=200)
    finally:
        if run.poll() is None:
            run.kill()
            run.wait()
    if run.returncode == 0:
        told: dict[str, Any] = json.loads(text)
        return told
    assert disturbed, text[-3000:]
    assert run.returncode in (-signal.SIGKILL, 1), text[-3000:]
    return None


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_twenty_kills_over_all_passes(tmp_path: Path) -> None:
    write_corpus(tmp_path / "in")
    (tmp_path / "killed.yaml").write_text(RECIPE)
    calm = finished(start(tmp_path, tmp_path / "calm"))
    assert calm is not None
    assert calm["n_records"] == calm["n_written"] + calm["n_dropped"] == 6000
    assert all(n > 0 for stage in calm["stages"][1:] for n in stage["dropped"].values())
    rng, killed = random.Random(11), Counter[str]()
    plan = [
        (phase, rng.choice(["driver", {"decision": "solver", "write": "driver"}.get(phase, "warm")]))
        for phase in PHASES * 5
    ]
    for n_rounds in range(40):
        output = tmp_path / f"out{n_rounds}"
        told = None
        while told is None:
            run = start(tmp_path, output, *rng.choice(SETTINGS))
            disturbed = bool(plan) and disturb(run, output, *plan[0], rng)
            if disturbed:
                killed[plan.pop(0)[0]] += 1
            told = finished(run, disturbed)
        about = json.loads((run_dir_path(output) / "curation.json").read_text())["about"]
        assert (about["content_hash"], about["n_written"]) == (calm["content_hash"], calm["n_written"])
        assert not (run_dir_path(output) / "curation").exists()
        if not plan:
            break
    assert killed == dict.fromkeys(PHASES, 5)
