"""The deciding process: its memory is capped, and what it cannot do it says with an exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tamis.dedup.solver_task import DecideEqual, NamedStep, SolverTask
from tamis.dedup.task_process import TaskEnvironment, write_task
from tamis.memory.release import hygiene_env

SRC = Path(__file__).parents[2] / "src"


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    env = hygiene_env({"PYTHONPATH": str(SRC), "HOME": str(Path.home())})
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, check=False)


def test_an_allocation_beyond_the_budget_fails() -> None:
    done = python(
        "from tamis.dedup.task_process import cap_memory; import numpy as np; from tamis.memory import "
        "meter\ncap_memory(meter.pss() + 100_000_000)\nheld = np.ones(60_000_000, np.uint8)\ntry: np.ones(60_000_000, "
        "np.uint8)\nexcept MemoryError: print('refused')"
    )
    assert done.stdout == "refused\n", done.stderr


def test_a_budget_that_is_too_small_is_reported_and_not_exceeded(tmp_path: Path) -> None:
    task = SolverTask([NamedStep.of(DecideEqual())], records=[], duplicates="", room_bytes=1 << 30)
    write_task(str(tmp_path), TaskEnvironment(budget_bytes=1), task)
    code = (
        "import sys; from tamis.dedup import solver; from tamis.dedup.exact import solver as exact; import numpy as "
        "np\nexact.exact_duplicates = lambda *_: np.ones(200_000_000, np.uint8)\nsys.exit(solver.main(sys.argv[1:]))"
    )
    done = python(code, str(tmp_path))
    assert done.returncode == 4, done.stderr
    assert "give more --memory" in json.loads(done.stdout.splitlines()[-1])["error"]


def test_an_unknown_step_is_an_error(tmp_path: Path) -> None:
    task = SolverTask([NamedStep("Guess", {})], records=[], duplicates="", room_bytes=1)
    write_task(str(tmp_path), TaskEnvironment(budget_bytes=10**10), task)
    done = python("import sys; from tamis.dedup.solver import main; sys.exit(main(sys.argv[1:]))", str(tmp_path))
    assert (done.returncode, json.loads(done.stdout)["error"]) == (2, "deduplication: unknown step 'Guess'")
