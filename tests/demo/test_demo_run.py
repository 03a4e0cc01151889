"""`tamis demo` finds what it planted, and says so when it does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tamis.cli.jobs.demo import compare
from tamis.demo.corpus import load
from tests.support.run_dirs import run_dir_path

SRC = Path(__file__).parents[2] / "src"


def demo(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    command = [sys.executable, "-m", "tamis.cli.start", "demo", "--size", "3MB", *args]
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=cwd, timeout=110, check=False)


def test_the_demo(tmp_path: Path) -> None:
    done = demo(cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "everything that was planted was found" in done.stdout
    assert (run_dir_path(tmp_path / "demo-output/result") / "report.html").exists()
    (dropped,) = [line for line in done.stdout.splitlines() if line.startswith("dropped: ")]
    share = int(dropped.split()[1])
    again = demo("--json", cwd=tmp_path)
    about = json.loads(again.stdout)
    assert (again.returncode, about["demo"]) == (0, "passed")
    assert all(c["planted"] == c["found"] for c in about["checks"])
    assert len(about["checks"]) == 10
    assert share == round(100 * about["n_dropped"] / about["n_records"])
    most = max(about["drops"], key=lambda drop: drop["documents"])
    assert f"({most['reason']} {100 * most['documents'] / about['n_records']:.0f} %" in dropped
    other = demo("--size", "4MB", cwd=tmp_path)
    assert (other.returncode, "holds a demo of 3 MB" in other.stderr) == (5, True)
    planted = load(tmp_path / "demo-output")
    assert planted is not None
    assert "report.html" in done.stdout.splitlines()[-1]
    copies = Counter({"remove_exact_duplicates": planted.totals["duplicate"]})
    about["stages"][0]["dropped"]["text_without_letters"] -= 1
    assert [what for what, a, b in compare(planted, about, copies) if a != b] == ["junk: dropped"]
    copies["remove_exact_duplicates"] -= 1
    assert [what for what, a, b in compare(planted, about, copies) if a != b] == [
        "junk: dropped",
        "duplicates: removed",
    ]


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "demo-output").mkdir()
    (tmp_path / "demo-output/mine.txt").write_text("mine")
    done = demo(cwd=tmp_path)
    assert (done.returncode, "is not empty and holds no demo" in done.stderr) == (5, True)
    assert [p.name for p in (tmp_path / "demo-output").iterdir()] == ["mine.txt"]
