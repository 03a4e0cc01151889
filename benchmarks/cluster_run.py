"""Run one command on a cluster and record its commits and its memory from outside."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tamis.memory import meter
from tamis.stores.run_locations import run_dir_of
from tests.support.bounded import clear_up, descendants

LIMIT_S = 400.0
_LOOK_S, _ALL_S = 0.2, 1.0  # looking at Ray's many processes takes a share of the cores, too: less often


@dataclass
class Seen:
    """One run. Rates are of documents read, from the first commit to the last."""

    executor: str
    seconds: float = 0.0
    first_s: float = 0.0
    documents: int = 0
    content: str = ""
    ours_bytes: int = 0
    rays_bytes: int = 0
    commits: list[tuple[float, int]] = field(default_factory=list)  # seconds, files committed by then

    @property
    def rate(self) -> float:
        """Documents a second after the first committed partitions: starting a cluster does not count."""
        begun = [c for c in self.commits if c[1] > 0]
        if len(begun) < 2 or begun[-1][0] <= begun[0][0]:
            return 0.0
        share = (begun[-1][1] - begun[0][1]) / begun[-1][1]
        return share * self.documents / (begun[-1][0] - begun[0][0])


def command(rules: str, executor: str, source: Path, output: Path, memory: str, *more: str) -> list[str]:
    words = [sys.executable, "-m", "tamis.cli.start", "filter", rules, str(source), str(output), "--memory", memory]
    return [*words, "--quiet", "--executor", executor, *more]


def run(rules: str, executor: str, source: Path, folder: Path, memory: str) -> Seen:
    """Run the command to its end on a cluster of its own; raise SystemExit with its output if it fails."""
    output, seen = folder / f"out-{executor}", Seen(executor)
    shutil.rmtree(output, ignore_errors=True)
    log = folder / f"{executor}.log"
    began_s = next_s = time.monotonic()
    with open(log, "wb") as out:
        words = command(rules, executor, source, output, memory, "--blocksize", "8MB")
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        while process.poll() is None and time.monotonic() - began_s < LIMIT_S:
            note_commits(seen, output, time.monotonic() - began_s)
            measure(seen, time.monotonic() >= next_s)
            next_s = time.monotonic() + _ALL_S if time.monotonic() >= next_s else next_s
            time.sleep(_LOOK_S)
    seen.seconds = time.monotonic() - began_s
    note_commits(seen, output, seen.seconds)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    clear_up()
    if process.wait() != 0:
        raise SystemExit(f"{executor} ended with {process.returncode}:\n{log.read_text(errors='replace')[-3000:]}")
    seen.documents, seen.content = documents_and_content(output)
    shutil.rmtree(output, ignore_errors=True)
    return seen


def documents_and_content(output: Path) -> tuple[int, str]:
    manifest = json.loads(Path(run_dir_of(output), "manifest.json").read_text())
    return manifest["ledger"]["records"][0], manifest["content_hash"]


def n_committed(output: Path) -> int:
    with contextlib.suppress(OSError):
        return sum(name.endswith(".jsonl") for name in os.listdir(output))
    return 0


def note_commits(seen: Seen, output: Path, now_s: float) -> None:
    n = n_committed(output)
    seen.first_s = seen.first_s or (now_s if n else 0.0)
    if not seen.commits or seen.commits[-1][1] != n:
        seen.commits.append((now_s, n))


def measure(seen: Seen, with_ray: bool) -> None:
    """Record the peak of our processes and, if asked, of Ray's own (sums of PSS).

    What holds an agent is a process of Ray's and counts in our budget.
    """
    ours = rays = 0
    for pid in descendants(os.getpid()):
        name = name_of_process(pid)
        if name.startswith(("gcs_server", "raylet")):
            is_ours = False
        else:
            line = (meter.command_line(pid) or b"").replace(b"\0", b" ").decode(errors="replace")
            holds = any(n in line for n in ("NodeAgent", "MapWorker", "StageWorker", "MapBatches"))
            is_ours = (name.startswith("tamis") and name != "tamis-keeper") or "tamis.cli" in line or holds
        if is_ours:
            ours += meter.pss(pid) or 0
        elif with_ray:
            rays += meter.pss(pid) or 0
    seen.ours_bytes, seen.rays_bytes = max(seen.ours_bytes, ours), max(seen.rays_bytes, rays)


def name_of_process(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""
