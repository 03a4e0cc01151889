"""Run scripts that start clusters outside of pytest: in a session of their own, with a time limit, cleaned up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

SUPPORT = Path(__file__).parent


@dataclass
class Apart:
    """Output of a script: the JSON object of its last line, what it printed before, and leftover processes."""

    code: int
    found: dict[str, Any]
    printed: str
    left: list[str] = field(default_factory=list)


def run_apart(script: Path, folder: Path, *arguments: str, seconds: float = 100.0, **environment: str) -> Apart:
    """Run a script of tests in `folder`. Output goes to a file: daemons that keep a pipe open would hold us up."""
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / "printed.txt"
    command = [
        sys.executable,
        str(SUPPORT / "bounded.py"),
        "--minutes",
        str(seconds / 60),
        sys.executable,
        "-u",
        str(script),
        *arguments,
    ]
    with out.open("wb") as file:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            timeout=seconds + 60,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(SUPPORT.parents[1]), "TAMIS_PROFILES": "off", **environment},
            check=False,
        )
    printed = out.read_text(errors="replace")
    body, _, left = printed.partition("left behind, and ended: ")
    lines = [line for line in body.splitlines() if line.startswith("{")]
    found = json.loads(lines[-1]) if lines else {}
    if "skip" in found:
        pytest.skip(found["skip"])
    return Apart(done.returncode, found, body, left.splitlines()[1:])
