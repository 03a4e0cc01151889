"""A run with --scratch is killed at the very call that makes, names or removes its scratch folder.

The next run leaves none behind.
"""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

JOB = """
import os, re, signal, sys

folder, kind, call, when, name, nth = sys.argv[1:]
calls = 0


def hooked(real):
    def wrapper(*args, **options):
        global calls
        is_it = re.search(name + "$", str(args[-1] if call == "replace" else args[0])) is not None
        is_it = is_it and (call != "unlink" or os.path.exists(args[0]))
        calls += is_it
        if is_it and calls == int(nth) and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*args, **options)
        if is_it and calls == int(nth) and when == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return wrapper


import shutil  # decides at its import which functions it uses
if call:
    setattr(os, call, hooked(getattr(os, call)))

settings = {"memory": "300MB", "workers": 1, "scratch": folder + "/scratch"}
if kind == "run":
    from tamis import Pipeline
    from tamis.stages.text.io import JsonlReader, JsonlWriter
    Pipeline("x", stages=[JsonlReader(folder + "/in"), JsonlWriter(folder + "/out")]).run(**settings)
else:
    from tamis.stages.deduplication.exact.workflow import ExactDeduplicationWorkflow
    workflow = ExactDeduplicationWorkflow(folder + "/out", folder + "/in", input_filetype="jsonl", perform_removal=True)
    workflow.run(progress=False, **settings)
"""
SCRATCH = r"/tamis-(dedup-)?[0-9a-f]{16}"
WINDOWS = [
    ("replace", "after", r"/(scratch|work)\.json"),  # named, not made yet
    ("mkdir", "before", SCRATCH),
    ("mkdir", "after", SCRATCH),
    ("rmdir", "before", SCRATCH),
    ("rmdir", "after", SCRATCH),
    ("unlink", "before", r"/(scratch|work)\.json"),
    ("unlink", "after", r"/(scratch|work)\.json"),
]


def job(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", JOB, str(folder), *args], capture_output=True, text=True, timeout=100, check=False
    )


def check(folder: Path, kind: str, window: tuple[str, str, str], nth: int) -> bool:
    """Kill a job at its nth call of this kind, run it again, and look; False where there is no such call."""
    (folder / "in").mkdir(parents=True)
    (folder / "scratch").mkdir()
    with gzip.open(folder / "in" / "a.jsonl.gz", "wt") as file:
        file.writelines(json.dumps({"text": f"document {i % 90}"}) + "\n" for i in range(100))
    killed = job(folder, kind, *window, str(nth))
    if killed.returncode == 0:
        return False
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    again = job(folder, kind, "", "", "", "0")
    assert again.returncode == 0, again.stderr
    assert [p.name for p in (folder / "scratch").iterdir()] == []
    data = [p.read_bytes() for p in (folder / "out").glob("*.jsonl*")]
    lines = [line for d in data for line in (gzip.decompress(d) if d[:2] == b"\x1f\x8b" else d).splitlines()]
    assert len(lines) == (100 if kind == "run" else 90)
    return True


FEW = [
    w
    if w[:2] in {("mkdir", "after"), ("rmdir", "before"), ("unlink", "before")}
    else pytest.param(w, marks=pytest.mark.slow)
    for w in WINDOWS
]


@pytest.mark.parametrize("window", FEW, ids=lambda w: " ".join(w[:2]))
def test_a_run_killed_around_its_scratch_folder_leaves_none(tmp_path: Path, window: tuple[str, str, str]) -> None:
    assert check(tmp_path, "run", window, 1)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("window", WINDOWS, ids=lambda w: " ".join(w[:2]))
def test_a_deduplication_killed_around_any_scratch_folder_leaves_none(
    tmp_path: Path, window: tuple[str, str, str]
) -> None:
    nth = 1
    while check(tmp_path / str(nth), "dedup", window, nth):
        nth += 1
    assert nth > 2
