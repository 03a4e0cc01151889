"""Kill workers, agents, nodes and the driver of a run on a cluster of two nodes and compare the content."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster_run import command, documents_and_content, n_committed, name_of_process
from tests.support.bounded import clear_up, descendants

LIMIT_S = 300.0
KINDS = {
    "ray": ("worker", "agent", "driver", "node"),
    "ray_data": ("worker", "agent", "driver", "node"),
    # Cosmos Xenna has no word for a node that goes while its pipeline runs: it waits for it.
    "xenna": ("worker", "agent", "driver"),
}
SETTINGS = {
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "3",
    "RAY_MAX_LIMIT_FROM_API_SERVER": "40000",
    "RAY_MAX_LIMIT_FROM_DATA_SOURCE": "40000",
}


@dataclass
class Killed:
    executor: str
    seconds: float = 0.0
    content: str = ""
    kills: Counter[str] = field(default_factory=Counter)


class TwoNodes:
    """A Ray cluster of a head and another node, with a core each."""

    def __init__(self, with_dashboard: bool) -> None:
        os.environ.update(SETTINGS)  # Ray looks at some of them when it is imported
        from ray.cluster_utils import Cluster

        head = {
            "num_cpus": 1,
            "include_dashboard": with_dashboard,
            "object_store_memory": 80_000_000,
            "memory": 10**9,
        }
        self._cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        self.address: str = self._cluster.address
        self._add()

    def _add(self) -> None:
        self._other = self._cluster.add_node(num_cpus=1, object_store_memory=80_000_000, memory=10**9)

    def kill_node(self) -> None:
        """Kill the other node; a new one replaces it."""
        self._cluster.remove_node(self._other, allow_graceful=False)
        self._add()

    def end(self) -> None:
        self._cluster.shutdown()


def run_killed(executor: str, source: Path, folder: Path, memory: str, n_kills: int, n_partitions: int) -> Killed:
    """One run, killed after every so many commits. `n_partitions`: about how many there will be."""
    nodes = TwoNodes(executor == "xenna")
    try:
        return _killed(executor, source, folder, memory, n_kills, n_partitions, nodes)
    finally:
        nodes.end()
        clear_up()


def _killed(
    executor: str, source: Path, folder: Path, memory: str, n_kills: int, n_partitions: int, nodes: TwoNodes
) -> Killed:
    output, log, found, rng = folder / f"out-{executor}", folder / f"{executor}.log", Killed(executor), random.Random(5)
    shutil.rmtree(output, ignore_errors=True)
    words = command("gopher", executor, source, output, memory, "--blocksize", "2MB", "--address", nodes.address)
    step, began_s, last = max(1, n_partitions // (2 * n_kills + 2)), time.monotonic(), 0
    process = _begin(words, log)
    while (code := process.poll()) != 0:
        if code is not None or time.monotonic() - began_s > LIMIT_S:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            text = log.read_text(errors="replace")[-3000:]
            raise SystemExit(f"{executor} ended with {code} after {dict(found.kills)}:\n{text}")
        n = n_committed(output)
        if found.kills.total() < n_kills and n >= last + step:
            kind = KINDS[executor][found.kills.total() % len(KINDS[executor])]
            if kind == "driver":
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
                process = _begin(words, log)
                found.kills[kind] += 1
            elif kind == "node":
                nodes.kill_node()
                found.kills[kind] += 1
            else:
                found.kills[kind] += _kill_one(f"tamis-{kind}", rng)
            last = n
        time.sleep(0.05)
    found.seconds = time.monotonic() - began_s
    found.content = documents_and_content(output)[1]
    shutil.rmtree(output, ignore_errors=True)
    return found


def _begin(words: list[str], log: Path) -> subprocess.Popen[bytes]:
    with open(log, "ab") as out:
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)


def _kill_one(name: str, rng: random.Random) -> int:
    found = [pid for pid in descendants(os.getpid()) if name_of_process(pid) == name]
    for pid in rng.sample(found, 1) if found else ():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            return 1
    return 0
