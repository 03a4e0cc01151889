"""Stages in the caller's process: their exceptions, debuggers and prints are the caller's."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

from tamis import DocumentBatch, InProcessExecutor, Pipeline, ProcessingStage
from tamis.stages.text.io import JsonlReader, JsonlWriter
from tests.faults.fault_harness import documents, env, execute, lines_of, write_lines
from tests.faults.fault_stages import RaiseOn
from tests.support.run_dirs import run_dir_path

SCRIPT = """
import sys
from tamis import InProcessExecutor, Pipeline, ProcessingStage
from tamis.stages.text.io import JsonlReader, JsonlWriter

class Stops(ProcessingStage):
    name = "stops"

    def process(self, batch):
        n = batch.num_items
        {body}
        return batch

source, output = sys.argv[1:]
pipeline = Pipeline("p", stages=[JsonlReader(source), Stops(), JsonlWriter(output)])
pipeline.run(InProcessExecutor(){settings})
print("finished", pipeline.last_result.ledger.written.n)
"""


class Fails(ProcessingStage[DocumentBatch, DocumentBatch]):
    name = "fails"
    in_setup = False

    def setup(self, worker_metadata: Any = None) -> None:
        if self.in_setup:
            raise KeyError("model")

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        raise ZeroDivisionError("no words")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "in" / "a.jsonl", documents(50))


def _script(
    tmp_path: Path, source: Path, body: str, stdin: str | None, settings: str = "", **more: str
) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(body=body, settings=settings))
    command = [sys.executable, str(script), str(source), str(tmp_path / "out")]
    fed: dict[str, Any] = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
    return subprocess.run(command, **fed, capture_output=True, text=True, env=env(**more), timeout=120, check=False)


@pytest.mark.parametrize("in_setup", [False, True])
def test_the_exception_of_a_stage_reaches_the_caller(tmp_path: Path, source: Path, in_setup: bool) -> None:
    stage = Fails()
    stage.in_setup = in_setup
    pipeline = Pipeline("p", stages=[JsonlReader(str(source)), stage, JsonlWriter(str(tmp_path / "out"))])
    with pytest.raises(KeyError if in_setup else ZeroDivisionError) as caught:
        pipeline.run(InProcessExecutor())
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (last.filename, last.name) == (__file__, "setup" if in_setup else "process")
    (note,) = caught.value.__notes__
    assert "fails" in note
    assert str(source) in note
    assert caught.value.__cause__ is None


def test_partitions_before_the_exception_are_committed_and_not_repeated(tmp_path: Path) -> None:
    first = write_lines(tmp_path / "in" / "a.jsonl", documents(20))
    write_lines(tmp_path / "in" / "b.jsonl", [b'{"text": "BAD"}'])
    stages = [JsonlReader(str(first.parent), files_per_partition=1), RaiseOn("BAD"), JsonlWriter(str(tmp_path / "out"))]
    with pytest.raises(ValueError, match="cannot bear"):
        Pipeline("p", stages=stages).run(InProcessExecutor())
    assert lines_of(tmp_path / "out") == lines_of(first.parent)[:20]
    assert not list((run_dir_path(tmp_path / "out") / "staged").glob("*"))
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").glob("*.jsonl")}
    resumed = Pipeline("p", stages=stages)
    resumed.execute(InProcessExecutor(), fail_fast=False, quarantine_limit="100%")
    assert {p: p.stat().st_mtime_ns for p in before} == before
    assert (resumed.last_result.ledger.written.n, resumed.last_result.ledger.quarantined.n) == (20, 1)


def test_errors_are_quarantined_if_the_setting_says_so(tmp_path: Path, source: Path) -> None:
    lines = [*documents(50), b'{"text": "BAD"}']
    write_lines(source, lines)
    settings = {"fail_fast": False, "quarantine_limit": "10%"}
    result = execute(source.parent, tmp_path / "out", [RaiseOn("BAD")], settings=settings, local=False)
    assert (result.ledger.written.n, result.ledger.quarantined.n) == (50, 1)


def test_a_failed_allocation_is_still_the_engines_to_recover_from(tmp_path: Path, source: Path) -> None:
    class Greedy(RaiseOn):
        def process(self, task: DocumentBatch) -> DocumentBatch:
            if task.num_items > 10:
                raise MemoryError
            return task

    result = execute(source.parent, tmp_path / "out", [Greedy()], local=False)
    assert result.ledger.written.n == 50
    assert result.counters["splits"] > 0


@pytest.mark.parametrize("call", ["breakpoint()", "import pdb; pdb.set_trace()"])
@pytest.mark.parametrize("settings", ["", ", fail_fast=False"])
@pytest.mark.parametrize("stdin", ["p n\nq\n", "p n\n", None], ids=["q", "end of input", "no terminal"])
def test_a_debugger_is_left(tmp_path: Path, source: Path, call: str, settings: str, stdin: str | None) -> None:
    done = _script(tmp_path, source, call, stdin, settings)
    assert done.returncode == 1
    assert done.stdout.count("(Pdb)") == (2 if stdin == "p n\nq\n" or stdin == "p n\n" else 1)
    assert ("50" in done.stdout) == (stdin is not None)
    assert "BdbQuit" in done.stderr or sys.version_info >= (3, 14)


def test_a_debugger_continues(tmp_path: Path, source: Path) -> None:
    done = _script(tmp_path, source, "breakpoint()", "c\n")
    assert (done.returncode, done.stdout.splitlines()[-1].rpartition("finished ")[2]) == (0, "50")


def test_breakpoints_can_be_turned_off(tmp_path: Path, source: Path) -> None:
    done = _script(tmp_path, source, "breakpoint()", None, PYTHONBREAKPOINT="0")
    assert done.returncode == 0


def test_prints_are_seen_and_no_line_is_written_over(tmp_path: Path, source: Path) -> None:
    """On a terminal, progress writes its line over again; that of a run in process would cover a prompt."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(body='print("seen", n)', settings=""))
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, str(script), str(source), str(tmp_path / "out")],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=env(TERM="xterm"),
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
    assert b"seen 50\r\n" in shown
    assert b"\x1b[2K" not in shown


def test_the_command_line_runs_in_process(tmp_path: Path, source: Path) -> None:
    (tmp_path / "mine.py").write_text(SCRIPT.partition("source, output")[0].format(body="breakpoint()"))
    recipe = {
        "stages": [
            {"_target_": "tamis.stages.text.io.JsonlReader", "file_paths": str(source)},
            {"_target_": "mine.Stops"},
            {"_target_": "tamis.stages.text.io.JsonlWriter", "path": str(tmp_path / "out")},
        ],
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    command = [sys.executable, "-m", "tamis.cli.main", "run", "recipe.yaml", "--executor", "in_process"]
    done = subprocess.run(
        [*command, "--allow-module", "mine"],
        input="p n\nq\n",
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=env(),
        timeout=120,
        check=False,
    )
    assert done.stdout.count("(Pdb)") == 2, done.stderr
    assert "50" in done.stdout
    assert done.returncode != 0
