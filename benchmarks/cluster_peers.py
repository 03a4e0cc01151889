"""Compare the recipe with 28 filters on our executors with those of the original system.

The original runs in an environment of its own, made once under bench-data/.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import data
from cluster_run import Seen, run
from measuring import measure
from peers import environments
from tests.support.bounded import clear_up

RULES, GOAL, LIMIT_S = "heuristic-english", 20.0, 400.0
PAIRS = ("ray_data", "xenna")


def against_peer(folder: Path, memory: str, n_times: int) -> tuple[list[str], bool]:
    """Lines of the page, and whether the goal was reached (or nothing could be compared).

    Ours: the base documents `n_times` over; theirs: once.
    """
    peer = environments.installed("nemo-curator")
    if peer is None:
        return ["The peer could not be installed here: nothing was compared."], True
    lines = [
        f"The recipe with 28 filters ({RULES}) against {peer.version()}, executor by executor; its Xenna runs in "
        "batch mode, since its streaming mode needs a core for",
        f"each of 30 stages. Theirs: {size_of(data.many(1))}; ours: {n_times} times those. Start-up of theirs is its "
        "wall time on a few documents.",
        "",
        "| executor | ours, documents/s | theirs | times | start-up left out: ours | theirs | times |",
        "|---|---|---|---|---|---|---|",
    ]
    reached = True
    for executor in PAIRS:
        ours = run(RULES, executor, data.many(n_times), folder, memory)
        wall_s, start_s = (_theirs(peer, source, folder / "theirs", executor) for source in (data.many(1), tiny()))
        if not wall_s or not start_s:
            lines.append(f"| {executor} | {_whole(ours):,.0f} | did not finish in {LIMIT_S:.0f} s, or failed | | | | |")
            reached = False
            continue
        n = ours.documents / n_times
        whole, after = n / wall_s, n / max(wall_s - start_s, 0.1)
        times = _whole(ours) / whole
        reached = reached and times >= GOAL
        lines.append(
            f"| {executor} | {_whole(ours):,.0f} | {whole:,.0f} | {times:.0f} | {ours.rate:,.0f} | {after:,.0f} | "
            f"{ours.rate / after:.0f} |"
        )
    return [*lines, "", f"Goal: {GOAL:.0f} times, start-up included: {'yes' if reached else 'NO'}."], reached


def _whole(ours: Seen) -> float:
    """Documents a second from the command to its end, starting a cluster included."""
    return ours.documents / ours.seconds


def _theirs(peer: environments.Peer, source: Path, target: Path, executor: str) -> float:
    """Seconds of one run; 0 where it fails, after a line that says how."""
    shutil.rmtree(target, ignore_errors=True)
    began_s = time.monotonic()
    result = measure(peer.command(source, target, executor), LIMIT_S, peer.env, pss_interval_s=1.0)
    clear_up()  # its cluster may outlive it
    if result["rc"] != 0:
        print(f"{peer.name} on {executor} ended with {result['rc']}: {result['said']}", flush=True)
        return 0.0
    shutil.rmtree(target, ignore_errors=True)
    return min(float(result["wall_s"]), time.monotonic() - began_s)


def tiny() -> Path:
    """Return a few documents."""
    folder = data.DATA / "cluster-start"
    folder.mkdir(parents=True, exist_ok=True)
    for part in data.base():
        with open(part, "rb") as file:
            (folder / part.name).write_bytes(b"".join(file.readline() for _ in range(5)))
    return folder


def size_of(folder: Path) -> str:
    return f"{sum(path.stat().st_size for path in folder.iterdir()) / 1e6:.0f} MB"
