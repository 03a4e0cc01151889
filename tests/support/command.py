"""The `tamis` command in a process of its own: a run counts the process that drives it, and a test process is large."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"


@dataclass(frozen=True)
class Told:
    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


def tamis(*arguments: object) -> Told:
    command = [sys.executable, "-m", "tamis.cli.start", *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=100, check=False)
    return Told(done.returncode, done.stdout, done.stderr)
