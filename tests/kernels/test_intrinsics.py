"""The loads, stores and masks that kernels are made of, and that no kernel reads beyond its buffers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(("script", "says"), [("intrinsics.py", "as they should\n"), ("guarded.py", "inside\n")])
def test_in_a_process_of_its_own(script: str, says: str) -> None:
    here = Path(__file__).resolve()
    source = str(here.parents[2] / "src")
    environment = {**os.environ, "PYTHONPATH": source + os.pathsep + os.environ.get("PYTHONPATH", "")}
    done = subprocess.run(
        [sys.executable, str(here.with_name(script))],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    # Kernels that were just edited are compiled first, and say so.
    complaints = [line for line in done.stderr.splitlines() if not line.startswith("compiling ")]
    assert (done.returncode, done.stdout, complaints[-5:]) == (0, says, [])
