"""Figures of runs on a cluster: `make bench-cluster`, or `python benchmarks/cluster.py [--small] [--kills N] [--only EXECUTOR ...]`.

For every executor: documents per second once the first partition is committed, against the local executor; seconds to the first committed
partition; the peak of our processes and, apart from it, of Ray's own (sum of PSS on the one node that there is, looked at from outside). Each run
starts a cluster of its own on this machine. `--kills N`: so many kills of workers and agents, one after the other, and whether the content stays
the same. Without --small it writes docs/benchmarks-cluster.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))
from bounded import adopt_orphans, clear_up, descendants

from figures import write_page
from tamis.memory import meter

EXECUTORS = ("local", "ray", "ray_data", "xenna")
LIMIT_S = 1200.0
ABOUT = """\
Written by `make bench-cluster` on one machine: the cluster has one node, and its processes, ours and the bench share two cores that others may use, too.

Throughput is that after the first committed partition, so that starting a cluster does not count; the seconds to that partition are beside it.
Peaks are sums of proportional set sizes of all processes below the bench, ten times a second: ours, and with Ray's own processes.\
"""


@dataclass
class Seen:
    """One run. Rates are of documents read, from the first commit to the last."""

    executor: str
    seconds: float = 0.0
    first_s: float = 0.0
    documents: int = 0
    bytes_read: int = 0
    content: str = ""
    ours_bytes: int = 0
    all_bytes: int = 0
    n_kills: int = 0
    commits: list[tuple[float, int]] = field(default_factory=list)  # seconds, files committed by then

    @property
    def share_per_s(self) -> float:
        """Of the output files, a second, after the first ones."""
        begin = next((c for c in self.commits if c[1] > 0), None)
        end = self.commits[-1] if self.commits else None
        return (end[1] - begin[1]) / (end[0] - begin[0]) if begin and end and end[0] > begin[0] else 0.0


def make_input(folder: Path, n_bytes: int, n_files: int) -> None:
    """Made-up English: what is measured is how partitions get to workers and back, not what is in them."""
    rng = random.Random(7)
    words = Path(__file__).read_text().split()
    texts = [
        json.dumps({"id": i, "text": " ".join(rng.choices(words, k=rng.randint(50, 900)))}) + "\n" for i in range(2000)
    ]
    folder.mkdir()
    for i in range(n_files):
        with open(folder / f"{i:04}.jsonl", "w", encoding="utf-8") as file:
            written = 0
            while written < n_bytes / n_files:
                written += file.write(rng.choice(texts))


def run(executor: str, source: Path, folder: Path, memory: str, n_kills: int = 0) -> Seen:
    output, seen = folder / f"out-{executor}", Seen(executor)
    shutil.rmtree(output, ignore_errors=True)
    command = [
        sys.executable,
        "-m",
        "tamis.cli.start",
        "filter",
        "gopher",
        str(source),
        str(output),
        "--memory",
        memory,
        "--quiet",
    ]
    command += ["--executor", executor, "--blocksize", "8MB"]
    began_s, rng = time.monotonic(), random.Random(n_kills)
    with open(folder / f"{executor}.log", "wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        next_kill_s = 0.0
        while process.poll() is None and time.monotonic() - began_s < LIMIT_S:
            now_s = time.monotonic() - began_s
            n = len(list(output.glob("*.jsonl"))) if output.exists() else 0
            seen.first_s = seen.first_s or (now_s if n else 0.0)
            if not seen.commits or seen.commits[-1][1] != n:
                seen.commits.append((now_s, n))
            measure(seen)
            if n and seen.n_kills < n_kills and now_s > next_kill_s:
                seen.n_kills += kill_one(rng)
                next_kill_s = now_s + 1.0
            time.sleep(0.1)
    seen.seconds = time.monotonic() - began_s
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    clear_up()
    if process.wait() != 0:
        raise SystemExit(
            f"{executor} ended with {process.returncode}:\n{(folder / f'{executor}.log').read_text()[-3000:]}"
        )
    manifest = json.loads((output / "_tamis" / "manifest.json").read_text())
    seen.documents, seen.content, seen.bytes_read = (
        manifest["ledger"]["records"][0],
        manifest["content_hash"],
        manifest["read_bytes"],
    )
    return seen


def measure(seen: Seen) -> None:
    ours = rays = 0
    for pid in descendants(os.getpid()):
        n = meter.pss(pid) or 0
        name = ""
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text().strip()
        line = (meter.command_line(pid) or b"").replace(b"\0", b" ").decode(errors="replace")
        # What holds an agent is a process of Ray's, and counts in our budget.
        holds = any(n in line for n in ("NodeAgent", "MapWorker", "StageWorker", "MapBatches"))
        if (name.startswith("tamis") and name != "tamis-keeper") or "tamis.cli" in line or holds:
            ours += n
        else:
            rays += n
    seen.ours_bytes, seen.all_bytes = max(seen.ours_bytes, ours), max(seen.all_bytes, ours + rays)


def kill_one(rng: random.Random) -> int:
    """A worker, or the agent above it."""
    found = []
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() in ("tamis-worker", "tamis-agent"):
                found.append(pid)
    for pid in rng.sample(found, 1) if found else ():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            return 1
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="150 MB instead of 1 GB; writes no page")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=list(EXECUTORS), choices=EXECUTORS)
    parser.add_argument("--memory", default="1GB")
    asked = parser.parse_args()
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="tamis-cluster-") as name:
        folder = Path(name)
        make_input(folder / "in", 150_000_000 if asked.small else 1_000_000_000, 12 if asked.small else 50)
        found = {executor: run(executor, folder / "in", folder, asked.memory) for executor in asked.only}
        lines = table(found)
        if asked.kills:
            for executor in [e for e in asked.only if e != "local"]:
                killed = run(executor, folder / "in", folder, asked.memory, asked.kills)
                same = killed.content == found[executor].content
                lines.append("")
                lines.append(
                    f"{executor}: {killed.n_kills} kills of workers and agents: the content is {'the same' if same else 'ANOTHER'}."
                )
    print("\n".join(lines))
    if not asked.small and set(asked.only) == set(EXECUTORS):
        write_page("benchmarks-cluster.md", ["# Figures: clusters", "", ABOUT, "", *lines])


def table(found: dict[str, Seen]) -> list[str]:
    local = found.get("local")
    lines = [
        "| executor | seconds | to the first partition | after it, of local | ours, MB | with Ray, MB | content |",
        "|---|---|---|---|---|---|---|",
    ]
    for seen in found.values():
        share = f"{seen.share_per_s / local.share_per_s:.0%}" if local is not None and local.share_per_s else "-"
        lines.append(
            f"| {seen.executor} | {seen.seconds:.1f} | {seen.first_s:.1f} | {share} | {seen.ours_bytes / 1e6:.0f} | {seen.all_bytes / 1e6:.0f} | "
            f"{'same' if local is None or seen.content == local.content else 'ANOTHER'} |"
        )
    return lines


if __name__ == "__main__":
    main()
