"""Measure runs on a cluster: `make bench-cluster`.

Usage: `python benchmarks/cluster.py [--small] [--kills N] [--peers] [--only EXECUTOR ...]`.

For every executor: documents per second once the first partition is committed, against the local executor; seconds to
the first committed partition; the peak of our processes and, apart from it, of Ray's own (sum of PSS on the one node
that there is, looked at from outside). Each run starts a cluster of its own on this machine. `--kills N`: so many kills
of workers, agents, nodes and the driver on clusters of two nodes, and whether the content stays the same. `--peers`:
the recipe with 28 filters beside the executors of the system that it comes from. Without --small it writes
benchmarks-cluster.md, with what was asked for. About eight minutes with everything, on two cores that nobody else
uses.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cluster_kills
import cluster_peers
import data
from cluster_run import Seen, run
from figures import write_page
from tamis.sizes import parse_size
from tests.support.bounded import adopt_orphans

EXECUTORS = ("local", "ray", "ray_data", "xenna")
GOAL = 0.85
ABOUT = """\
Written by `make bench-cluster` on one machine with {cores} cores: the cluster has one node, and its processes,
ours and the bench share the cores.

Throughput is that after the first committed partition, so that starting a cluster does not count; the seconds to
that partition are shown, too. Peaks are sums of proportional set sizes: of our processes, which count in the budget
(each is a child of a process that Ray starts), and of those with Ray's own.\
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="200 MB instead of 1 GB; writes no page")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--only", nargs="*", default=list(EXECUTORS), choices=EXECUTORS)
    parser.add_argument("--memory", default="1GB")
    asked = parser.parse_args()
    adopt_orphans()
    os.environ["TAMIS_PROFILES"] = "off"
    folder, n_times = data.DATA / "out-cluster", 2 if asked.small else 10
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    found: dict[str, Seen] = {}
    for executor in asked.only:
        found[executor] = run("gopher", executor, data.many(n_times), folder, asked.memory)
        print(table({e: found[e] for e in dict.fromkeys(["local", executor]) if e in found})[-1], flush=True)
    lines, fine = table(found), judge(found, parse_size(asked.memory, "--memory"))
    if asked.kills:
        told, same = kills([e for e in asked.only if e != "local"], folder, asked.memory, asked.kills)
        lines, fine = [*lines, "", "## Kills", "", *told], fine and same
    if asked.peers:
        try:
            told, reached = cluster_peers.against_peer(folder, asked.memory, n_times)
        except SystemExit as exc:
            print(exc, flush=True)
            told, reached = ["The comparison FAILED."], False
        lines, fine = [*lines, "", "## Beside NeMo Curator", "", *told], fine and reached
    shutil.rmtree(folder, ignore_errors=True)
    print("\n".join(lines))
    if not asked.small and set(asked.only) == set(EXECUTORS):
        write_page("benchmarks-cluster.md", ["# Figures: clusters", "", ABOUT.format(cores=os.cpu_count()), "", *lines])
    return 0 if fine else 1


def kills(executors: list[str], folder: Path, memory: str, n_kills: int) -> tuple[list[str], bool]:
    """Share the kills among the executors; an undisturbed run says what the content should be."""
    source, all_same = data.many(3), True
    wanted = run("gopher", "local", source, folder, memory).content
    n_partitions = sum(path.stat().st_size for path in source.iterdir()) // 2_000_000
    lines = [
        "On two nodes, 300 MB, in partitions of 2 MB:",
        "",
        "| executor | killed | seconds | content |",
        "|---|---|---|---|",
    ]
    for i, executor in enumerate(executors):
        n = n_kills // len(executors) + (i < n_kills % len(executors))
        try:
            killed = cluster_kills.run_killed(executor, source, folder, memory, n, n_partitions)
        except (SystemExit, Exception) as exc:  # what was measured before is worth more than an early end
            print(repr(exc), flush=True)
            lines.append(f"| {executor} | the run FAILED | | |")
            all_same = False
            continue
        same = killed.content == wanted
        all_same = all_same and same and killed.kills.total() == n
        told = ", ".join(f"{k} {name}{'s' if k > 1 else ''}" for name, k in sorted(killed.kills.items()))
        lines.append(f"| {executor} | {told} | {killed.seconds:.0f} | {'the same' if same else 'ANOTHER'} |")
        print(lines[-1], flush=True)
    return lines, all_same


def judge(found: dict[str, Seen], budget_bytes: int) -> bool:
    """Whether every goal was reached: throughput, budget, content."""
    local = found.get("local")
    return all(
        seen.ours_bytes <= budget_bytes
        and (local is None or (seen.content == local.content and seen.rate >= GOAL * local.rate))
        for seen in found.values()
    )


def table(found: dict[str, Seen]) -> list[str]:
    local = found.get("local")
    lines = [
        "| executor | seconds | to the first partition | documents/s after it | of local | ours, MB | with Ray, MB | "
        "content |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for seen in found.values():
        share = f"{seen.rate / local.rate:.0%}" if local is not None and local.rate else "-"
        same = "same" if local is None or seen.content == local.content else "ANOTHER"
        ours, everything = seen.ours_bytes / 1e6, (seen.ours_bytes + seen.rays_bytes) / 1e6
        lines.append(
            f"| {seen.executor} | {seen.seconds:.1f} | {seen.first_s:.1f} | {seen.rate:,.0f} | {share} | {ours:.0f} | "
            f"{everything:.0f} | {same} |"
        )
    return lines


if __name__ == "__main__":
    sys.exit(main())
