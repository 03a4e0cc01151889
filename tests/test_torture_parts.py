"""`make torture` runs every slow test, in exactly one of its parts."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.support.torture_parts import PARTS, ROOT, part_of

# Said here in two pieces: this file has no slow tests.
SLOW = "mark." + "slow"


def slow_files() -> list[str]:
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if SLOW in path.read_text(encoding="utf-8")]
    return sorted(path.relative_to(ROOT).as_posix() for path in files)


def make_list(name: str) -> list[str]:
    """Return a variable of the Makefile."""
    found = re.search(rf"^{name} := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found, f"the Makefile has no {name}"
    return found[1].split()


def test_every_part_has_slow_tests_and_make_runs_it() -> None:
    parts = {path: part_of(path) for path in slow_files()}
    assert len(parts) > 30
    assert set(parts.values()) == set(PARTS)
    assert make_list("TORTURE_PARTS") == list(PARTS)


def test_pytest_runs_the_tests_of_one_part_only() -> None:
    files = ["tests/faults/test_leaks.py", "tests/faults/test_kills.py", "tests/memory/test_leaks.py"]
    command = [sys.executable, "-m", "pytest", "-m", "slow", "--part", "memory", "--collect-only", "-qq"]
    told = subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert re.findall(r"^tests/\S+(?=: [1-9])", told.stdout, re.MULTILINE) == [files[0], files[2]], told.stdout
