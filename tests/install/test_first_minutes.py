"""The first fifteen minutes: every command of docs/start.md runs, one after the other, in an empty folder.

By default with the environment of the suite, from `tamis --version` on. `make first-minutes` (marked slow) begins with
the first line of the page: an environment of its own and `pip install .` of a copy of the checkout.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.run_dirs import run_dir_path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/start.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```(bash|python|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def steps(folder: Path) -> list[str]:
    """Write the files of the page into a folder, and return its commands as lines of a script, in their order."""
    lines: list[str] = []
    for language, text in _BLOCK.findall(PAGE):
        name = re.match(r"# ([\w.]+)\n", text)
        if language == "bash":
            lines += text.splitlines()
        elif name is not None:
            (folder / name[1]).write_text(text)
        else:
            (folder / f"program{len(lines)}.py").write_text(text)
            lines.append(f"python program{len(lines)}.py")
    return lines


def run(lines: list[str], folder: Path, path: Path | None = None, timeout: int = 300) -> str:
    """Run lines as one script that stops at the first failure; return its output."""
    env = {**os.environ, "TAMIS_PROFILES": "off"}
    if path is not None:
        env |= {"PATH": f"{path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        ["bash", "-eux"],
        input="\n".join(lines),
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def shapes(lines: list[str]) -> set[str]:
    """Return lines without their numbers and white space; those of two runs are equal."""
    return {re.sub(r"[-\d.,]+|\s+", "", line) for line in lines if line.strip()}


def check(folder: Path, printed: str) -> None:
    """Check what the page promises, by facts that no version of Python changes."""
    report = json.loads((run_dir_path(folder / "clean") / "report.json").read_text())
    assert report, "the report has totals"
    kept = [json.loads(line) for path in (folder / "clean").glob("part-*") for line in path.read_text().splitlines()]
    n_read = sum(len(path.read_bytes().splitlines()) for path in (folder / "data").iterdir())
    assert 0 < len(kept) < n_read
    assert "not valid JSON" in printed, "tamis quarantine shows the damaged line"
    assert "mirror-binary" in printed
    assert "line_punct_ratio" in printed
    (shown,) = re.findall(r"^```text\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    units = re.compile(r"(?<=\d )[kMG]?B\b")
    left = shapes(units.sub("B", shown).splitlines()) - shapes(
        units.sub("B", printed.replace(f"{folder}/", "")).splitlines()
    )
    assert not left, "README.md shows other lines than the command prints: make screenshots"
    assert (folder / "clean/README.md").exists()
    assert (run_dir_path(folder / "clean") / "report.html").exists()
    assert list((folder / "long").glob("*.parquet"))
    assert list((folder / "long-py").glob("*.jsonl"))


@pytest.mark.timeout(400)
def test_the_page_runs_in_the_environment_of_the_suite(tmp_path: Path) -> None:
    commands = steps(tmp_path)
    begin = commands.index("tamis --version")
    assert any(line.startswith("pip install .") for line in commands[:begin])
    check(tmp_path, run(commands[begin:], tmp_path, Path(sys.executable).parent))


@pytest.mark.slow
@pytest.mark.timeout(1300)
def test_the_page_runs_from_pip_install_on(tmp_path: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a checkout of git")
    folder = tmp_path / "tamis"
    for file in listed.stdout.decode().split("\0"):
        if file and (ROOT / file).exists() and not file.startswith("tests/"):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, folder / file)
    check(folder, run(steps(folder), folder, timeout=1200))
