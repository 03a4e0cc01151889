"""What stages print in worker processes reaches the terminal, with the name of the stage."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.fault_harness import documents, env, lines_of, write_lines
from tests.support.run_dirs import run_dir_path
from tests.support.warm_python import run_python

STAGE = """
import logging
import sys

from tamis import ProcessingStage

log = logging.getLogger(__name__)
print("imported")


class Talks(ProcessingStage):
    name = "talks"

    def __init__(self, n=1):
        self.n = n

    def setup(self, worker_metadata=None):
        print("set up", flush=True)

    def process(self, batch):
        for i in range(self.n):
            print("line", i)
        log.warning("%d documents", batch.num_items)
        sys.stderr.write("no end of line")
        return batch
"""
SCRIPT = """
import sys
from talking import Talks
from tamis import Pipeline
from tamis.stages.text.io import JsonlReader, JsonlWriter

source, output = sys.argv[1:3]
pipeline = Pipeline("p", stages=[JsonlReader(source), Talks({n}), JsonlWriter(output)])
pipeline.run(memory="512MB", workers=1{settings})
"""
EXPECTED = ["[talks (its setup)] set up", "[talks] line 0", "[talks] 50 documents", "[talks] no end of line"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_lines(tmp_path / "in" / "a.jsonl", documents(50))
    (tmp_path / "talking.py").write_text(STAGE)
    return tmp_path


def script(place: Path, n: int = 1, settings: str = "") -> list[str]:
    (place / "script.py").write_text(SCRIPT.format(n=n, settings=settings))
    return [sys.executable, "script.py", "in", "out"]


def run(command: list[str], place: Path) -> subprocess.CompletedProcess[str]:
    return run_python(*command[1:], cwd=place, env=env())


def labelled(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("[talks")]


def test_prints_and_logging_reach_the_terminal_of_a_program(place: Path) -> None:
    done = run(script(place), place)
    assert done.returncode == 0, done.stderr
    assert sorted(labelled(done.stderr)) == sorted(EXPECTED)
    assert "[workers] imported" in done.stderr


@pytest.mark.parametrize("settings", [", worker_output=False", ""])
def test_a_program_can_turn_it_off(place: Path, settings: str) -> None:
    done = run(script(place, settings=settings), place)
    assert bool(labelled(done.stderr)) == (not settings)
    assert "[talks] line 0" in (run_dir_path(place / "out") / "worker.log").read_text()


@pytest.mark.parametrize("flags", [[], ["--worker-output"], ["--worker-output", "--quiet"]])
def test_commands_show_it_with_the_option(place: Path, flags: list[str]) -> None:
    recipe = {
        "name": "r",
        "stages": [
            {"_target_": "tamis.stages.text.io.JsonlReader", "file_paths": "in"},
            {"_target_": "talking.Talks"},
            {"_target_": "tamis.stages.text.io.JsonlWriter", "path": "out"},
        ],
    }
    (place / "recipe.yaml").write_text(json.dumps(recipe))
    command = [sys.executable, "-m", "tamis.cli.start", "run", "recipe.yaml", "--allow-module", "talking"]
    done = run([*command, "--memory", "512MB", "--workers", "1", *flags], place)
    assert done.returncode == 0, done.stderr
    assert sorted(labelled(done.stderr)) == (sorted(EXPECTED) if flags else [])


def test_the_line_of_progress_stays_whole(place: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        script(place), stdin=theirs, stdout=theirs, stderr=theirs, cwd=place, env=env(TERM="xterm")
    )
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 4096):
            shown += part
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert process.wait(60) == 0
    for line in EXPECTED:
        before, found, after = shown.decode().partition(line)
        assert found
        assert before.endswith(("\x1b[2K", "\r\n")), "each begins at the start of a line"
        assert after.startswith("\r\n")


def test_a_flood_is_bounded_and_costs_no_document(place: Path) -> None:
    done = run(script(place, n=300_000), place)
    assert done.returncode == 0, done.stderr
    assert len(labelled(done.stderr)) < 2000
    assert "more lines are not shown" in done.stderr
    assert len(lines_of(place / "out")) == 50


def test_a_terminal_that_is_not_read_does_not_block_a_worker(place: Path) -> None:
    """The reader of stderr has ended: the run goes on without showing anything."""
    read, write = os.pipe()
    process = subprocess.Popen(script(place, n=1000), stderr=write, cwd=place, env=env())
    os.close(write)
    os.close(read)
    process.wait(120)
    assert len(lines_of(place / "out")) == 50
