"""Stages that take memory around the limit of their process: bounded, named, and nothing left behind.

All kinds: test_budget_matrix.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tamis import LocalExecutor
from tamis.errors import BudgetError, Incomplete
from tamis.memory import meter, sampler
from tamis.memory.budget import describe_limits
from tamis.memory.seccomp_gate import SWITCH
from tests.faults.fault_harness import (
    assert_conserved,
    documents,
    events,
    execute,
    lines_of,
    make_pipeline,
    write_lines,
)
from tests.faults.hostile_stages import Hostile

needs_gate = pytest.mark.skipif("gate" not in describe_limits()["enforcement"], reason="no seccomp notifications here")


@needs_gate
def test_a_mapped_file_that_does_not_fit_is_refused_with_the_number(tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.touch()
    os.truncate(big, 800_000_000)
    write_lines(tmp_path / "in" / "a.jsonl", documents(1))
    pipeline = make_pipeline(tmp_path / "in", tmp_path / "out", [Hostile("mapped_file", path=str(big))])
    with pytest.raises(Incomplete, match=r"'hostile'.* asked for 800 MB at once.*--memory 1\d\d\dMB or more"):
        pipeline.run(LocalExecutor(), memory="300MB")
    refused = [data for kind, data in events(tmp_path / "out") if kind == "refused"]
    assert refused
    assert refused[0]["n_bytes"] == 800_000_000


def marked() -> set[int]:
    """Return the processes that were started by this one, directly or not."""
    return {int(name) for name in os.listdir("/proc") if name.isdigit() and sampler.is_marked(int(name))}


@pytest.mark.own_processes
def test_daemons_of_a_stage_end_with_the_run(tmp_path: Path) -> None:
    before = marked()
    write_lines(tmp_path / "in" / "a.jsonl", documents(3))
    result = execute(tmp_path / "in", tmp_path / "out", [Hostile("daemons", mb=60)], settings={"memory": "420MB"})
    assert_conserved(result)
    assert len(lines_of(tmp_path / "out")) == 3
    assert result.peak_bytes <= 420_000_000
    assert [pid for pid in marked() - before if meter.is_alive(pid)] == []


@needs_gate
def test_children_that_need_more_than_one_of_two_workers_gets_leave_one_worker_and_all_is_done(tmp_path: Path) -> None:
    """What they take is the stage's need, whatever the documents: it is not split until nothing is left."""
    write_lines(tmp_path / "in" / "a.jsonl", documents(12))
    result = execute(
        tmp_path / "in",
        tmp_path / "out",
        [Hostile("forks", mb=150, held_s=0.1)],
        settings={"memory": "300MB", "workers": 2},
    )
    assert_conserved(result)
    assert len(lines_of(tmp_path / "out")) == 12
    assert result.counters["memory_failures"] <= 8


@needs_gate
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pool", "forks"])
def test_following_the_advice_is_enough(tmp_path: Path, kind: str) -> None:
    write_lines(tmp_path / "in" / "a.jsonl", documents(3))
    pipeline = make_pipeline(tmp_path / "in", tmp_path / "out", [Hostile(kind, mb=560)])
    with pytest.raises(BudgetError, match=r"'hostile'.*--memory (\d+)MB or more") as refused:
        pipeline.run(LocalExecutor(), memory="300MB")
    advised = str(refused.value).partition("--memory ")[2].split(" ")[0]
    assert 660 < int(advised.removesuffix("MB")) < 1300
    result = pipeline.execute(LocalExecutor(), memory=advised)
    assert_conserved(result)
    assert len(lines_of(tmp_path / "out")) == 3


def test_without_a_gate_a_stage_is_watched_and_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "off")
    assert "gate" not in describe_limits()["enforcement"]
    write_lines(tmp_path / "in" / "a.jsonl", documents(1))
    pipeline = make_pipeline(tmp_path / "in", tmp_path / "out", [Hostile("mapping_children", mb=600, held_s=0.1)])
    with pytest.raises(Incomplete, match=r"'hostile'.*--memory \d+MB or more"):
        pipeline.run(LocalExecutor(), memory="300MB")
    told = [data["text"] for kind, data in events(tmp_path / "out") if kind == "unbounded"]
    assert len(told) == 1
    assert "watched only" in told[0]


KILLED = """
import json, os, sys
sys.path[:0] = json.loads(sys.argv[1])
from tests.faults.fault_harness import make_pipeline
from tests.faults.hostile_stages import Hostile
from tamis import LocalExecutor
if __name__ == "__main__":
    folder = sys.argv[2]
    stage = Hostile("lingering", mb=4, path=folder)
    make_pipeline(folder + "/in", folder + "/out", [stage]).run(LocalExecutor(), memory="420MB", workers=1)
"""


@pytest.mark.parametrize("who", ["run", "server"])
def test_a_killed_run_leaves_neither_processes_nor_shared_memory(tmp_path: Path, who: str) -> None:
    """Daemons, and files in shared memory that nobody else would remove."""
    write_lines(tmp_path / "in" / "a.jsonl", documents(1))
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    mark = f"{tmp_path.name}-{os.getpid()}"
    with subprocess.Popen(
        [sys.executable, str(script), json.dumps(sys.path), str(tmp_path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOSTILE_MARK": mark},
    ) as process:
        try:
            daemon = int(_appears(tmp_path / "daemon", process))
            shared = (tmp_path / "shared").read_text()
            assert os.path.exists(shared)
            assert meter.is_alive(daemon)
            victim = process.pid if who == "run" else _server_of(process.pid)
            os.kill(victim, signal.SIGKILL)
            if who == "run":
                process.wait(20)
            assert _soon(lambda: not meter.is_alive(daemon)), "the daemon is still there"
            assert _soon(lambda: not os.path.exists(shared)), "its shared memory is still there"
        finally:
            process.kill()
    assert _soon(lambda: not _marked(mark)), "processes are left"


def _server_of(pid: int) -> int:
    return next(child for child, parent in meter.descendants(pid).items() if parent == pid)


def _appears(path: Path, process: subprocess.Popen[bytes]) -> str:
    deadline_s = time.monotonic() + 60
    while not path.exists() and process.poll() is None and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return path.read_text()


def _soon(is_so: Callable[[], bool]) -> bool:
    deadline_s = time.monotonic() + 20
    while not is_so() and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return is_so()


def _marked(mark: str) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and mark.encode() in (meter.environment(int(name)) or b""):
            found.append(int(name))
    return [pid for pid in found if meter.is_alive(pid)]
