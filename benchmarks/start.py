"""Measure installing and starting: `make bench-start`.

Usage: `python benchmarks/start.py [--wheel FILE] [--before COMMIT] [--quick]`.

Installs a wheel (built for this machine's CPU, if none is given) with its dependencies into an environment of its own,
and measures there: its size, the very first run, later runs, help, the memory of processes that do nothing, and the
smallest budget. How much of the pages of libraries counts depends on what else runs, so the memory of an earlier commit
is measured right before and after, in an environment of its own. Writes benchmarks-start.md, in three minutes on
two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from figures import write_page
from tamis.memory import meter

ROOT = Path(__file__).resolve().parent.parent
# Before kernels were shipped compiled and arguments read without typer and pydantic.
BEFORE = {
    "environment": "540 MB",
    "first": "22 s (64 s at a load of 8)",
    "later": "0.56 s (1.9 s at a load of 8)",
    "help": "0.17-0.26 s",
    "idle": "not measured",
    "smallest": "about 200 MB, varies from run to run (192, 197, 206)",
}
COMMIT = "eb96726"  # the last one that compiled its kernels at the first run
IDLE = """
import time
from dataclasses import dataclass
from tamis.stages.base import ProcessingStage

@dataclass
class Sleep(ProcessingStage):
    name: str = "sleep"

    def process(self, task):
        time.sleep(3)
        return task
"""
RECIPE = """
stages:
  - _target_: tamis.stages.text.io.reader.JsonlReader
    file_paths: {source}
    files_per_partition: 1
  - _target_: sleeping.Sleep
  - _target_: tamis.stages.text.io.writer.JsonlWriter
    path: {target}
"""


class Place:
    """An environment with the wheel in it, and a home that nobody has used."""

    def __init__(self, folder: Path, wheel: str) -> None:
        self.folder, self.bin = folder, folder / "venv" / "bin"
        folder.mkdir()
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
        pip = [str(self.bin / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, wheel], check=True)
        (folder / "in").mkdir()
        (folder / "in" / "one.jsonl").write_text('{"id": 1, "text": "one document"}\n')
        self.env = {"PATH": os.environ["PATH"], "HOME": str(folder / "home"), "TAMIS_PROFILES": "off"}
        (folder / "home").mkdir()

    def tamis(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.bin / "tamis"), *arguments]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, check=False, cwd=self.folder)

    def one_document(self, *more: str) -> subprocess.CompletedProcess[str]:
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        return self.tamis("filter", "gopher", str(self.folder / "in"), str(self.folder / "out"), "--quiet", *more)


def seconds(call: Callable[[], subprocess.CompletedProcess[str]]) -> float:
    began_s = time.monotonic()
    done = call()
    took_s = time.monotonic() - began_s
    assert done.returncode == 0, done.stderr
    return took_s


def environment_bytes(place: Place) -> int:
    """Measure what a user downloads in addition to Python and pip."""
    (packages,) = (place.folder / "venv" / "lib").glob("python*/site-packages")
    files = [path for path in packages.rglob("*") if path.is_file() and not path.is_symlink()]
    ours = [p for p in files if not p.relative_to(packages).parts[0].startswith(("pip", "setuptools", "pkg_resources"))]
    return sum(path.stat().st_blocks * 512 for path in ours)


def idle_bytes(place: Place) -> int:
    """PSS of supervisor, forking server and two workers that wait, as seen from outside."""
    (place.folder / "sleeping.py").write_text(IDLE)
    shutil.rmtree(place.folder / "slept", ignore_errors=True)
    (place.folder / "two").mkdir(exist_ok=True)
    for name in "ab":
        (place.folder / "two" / f"{name}.jsonl").write_text('{"text": "a document"}\n')
    recipe = RECIPE.format(source=json.dumps(str(place.folder / "two")), target=json.dumps(str(place.folder / "slept")))
    (place.folder / "sleep.yaml").write_text(recipe)
    command = [str(place.bin / "tamis"), "run", "sleep.yaml", "--allow-module", "sleeping", "--workers", "2", "--quiet"]
    env = {**place.env, "PYTHONPATH": str(place.folder)}
    with subprocess.Popen(command, env=env, cwd=place.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        seen = []
        while run.poll() is None:
            pids = [run.pid, *meter.descendants(run.pid)]
            names = [_name(pid) for pid in pids]
            if names.count("tamis-worker") == 2:
                seen.append(meter.tree_pss(pids))
            time.sleep(0.1)
        assert run.returncode == 0, run.stderr and run.stderr.read()
    return sorted(seen)[len(seen) // 2]


def idle_beside(place: Place, before: Place | None) -> tuple[int, int]:
    """Return bytes of the earlier commit (0 without one) and of this one: medians of three each, in turn."""
    if before is not None:
        idle_bytes(before)  # it compiles its kernels
    pairs = [(idle_bytes(before) if before is not None else 0, idle_bytes(place)) for _ in range(3)]
    return sorted(b for b, _ in pairs)[1], sorted(n for _, n in pairs)[1]


def checkout(commit: str, folder: Path) -> str:
    """Return a folder with the sources of a commit; empty if this is no checkout with that commit."""
    folder.mkdir()
    packed = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=False)
    if packed.returncode:
        return ""
    subprocess.run(["tar", "x", "-C", str(folder)], input=packed.stdout, check=True)
    return str(folder)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def smallest_budgets(place: Place, n_times: int) -> list[int]:
    """Check that a run with the budget named by a refused run works, several times."""
    found = []
    for _ in range(n_times):
        said = place.one_document("--memory", "1MB").stderr
        match = re.search(r"smallest that works here is (\d+)MB", said)
        assert match, said
        found.append(int(match.group(1)))
    assert place.one_document("--memory", f"{max(found)}MB").returncode == 0
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", default="", help="a wheel of Tamis; default: built from this checkout")
    parser.add_argument("--before", default=COMMIT, help="the commit whose idle memory is measured beside; '' for none")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, and no page is written")
    args = parser.parse_args()
    n_times = 3 if args.quick else 10
    with tempfile.TemporaryDirectory(prefix="tamis-start-") as folder:
        place = Place(Path(folder, "now"), args.wheel or str(ROOT))
        size = environment_bytes(place)
        first_s = seconds(place.one_document)
        later_s = min(seconds(place.one_document) for _ in range(n_times))
        help_s = min(seconds(lambda: place.tamis("--help")) for _ in range(n_times))
        sources = checkout(args.before, Path(folder, "sources")) if args.before else ""
        idle_before, idle = idle_beside(place, Place(Path(folder, "before"), sources) if sources else None)
        smallest = smallest_budgets(place, n_times)
    load = os.getloadavg()[1]
    before = {**BEFORE, **({"idle": f"{idle_before / 1e6:.0f} MB"} if idle_before else {})}
    figures: dict[str, tuple[str, str, str]] = {
        "environment": (
            "core environment on disk (Python and pip not counted)",
            f"{size / 1e6:.0f} MB",
            "330 MB, with pandas 390",
        ),
        "first": ("very first run, one document", f"{first_s:.2f} s", "1.0 s"),
        "later": ("later run, one document", f"{later_s:.2f} s", "0.40 s"),
        "help": ("`tamis --help`", f"{help_s:.2f} s", "0.15 s"),
        "idle": (
            "idle: supervisor, forking server, two workers (PSS)",
            f"{idle / 1e6:.0f} MB{f' ({(idle_before - idle) / 1e6:.0f} less)' if idle_before else ''}",
            "30 MB less",
        ),
        "smallest": (
            "smallest budget that works for `filter gopher`",
            f"{' or '.join(sorted({f'{n} MB' for n in smallest}))} ({n_times} times)",
            "150 MB, always the same number",
        ),
    }
    rows = [f"| {what} | {before[name]} | {found} | {goal} |" for name, (what, found, goal) in figures.items()]
    lines: list[Any] = ["| | before | now | goal |", "|---|---|---|---|", *rows]
    print("\n".join(lines))
    if not args.quick:
        write_page(
            "benchmarks-start.md",
            [
                "# Figures of installing and starting",
                "",
                "Written by `make bench-start`; what is measured, and how: benchmarks/start.py. Times are the best of "
                "ten; the load of the "
                f"machine meanwhile was {load:.1f} on {os.cpu_count()} cores.",
                "",
                *lines,
            ],
        )


if __name__ == "__main__":
    main()
