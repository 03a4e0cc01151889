"""The `tamis` command in a process of its own: a run counts the process that drives it, and a test process is large."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tests.support.warm_python import run_python

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
    done = run_python("-m", "tamis.cli.start", *map(str, arguments), env={**os.environ, "PYTHONPATH": str(SRC)})
    return Told(done.returncode, done.stdout, done.stderr)
