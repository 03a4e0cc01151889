"""Kill a worker, an agent, a node and the driver on a real Ray cluster of several nodes (local processes).

`on_several_nodes.py NAME KINDS`: the executor, and what is killed, joined by +. Run by test_kills.py in a process of
its own. One line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE, TESTS = Path.cwd(), Path(__file__).parent
N_FILES, SECONDS = 36, "0.7"
sys.path.insert(0, str(TESTS.parents[1]))

from tests.support.bounded import descendants, name_of  # noqa: E402


def write_documents() -> None:
    (HERE / "data").mkdir()
    rng = random.Random(3)
    for i in range(N_FILES):
        lines = [json.dumps({"id": f"{i}-{n}", "text": f"{rng.random()} text"}) + "\n" for n in range(20)]
        (HERE / "data" / f"{i:03}.jsonl").write_text("".join(lines))


def begin(name: str, output: str, address: str) -> subprocess.Popen[bytes]:
    log = (HERE / f"{output}.log").open("wb")
    command = [sys.executable, str(TESTS / "slow_copy.py"), name, output, address, SECONDS]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    )


def ended(process: subprocess.Popen[bytes], output: str, seconds: float = 150.0) -> dict[str, Any]:
    code = process.wait(seconds)
    text = (HERE / f"{output}.log").read_text(errors="replace")
    lines = [line for line in text.splitlines() if line.startswith("{")]
    return {"code": code, **(json.loads(lines[-1]) if lines else {"log": text[-3000:]})}


def of_kind(comm: str, below: int) -> list[int]:
    """Return our processes below this one by the name that they set (agents are below Ray's own)."""
    found = []
    for pid in descendants(below):
        with contextlib.suppress(OSError):
            is_dead = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
            if Path(f"/proc/{pid}/comm").read_text().strip() == comm and not is_dead:
                found.append(pid)
    return sorted(found)


def wait_for_commits(output: str, n: int, process: subprocess.Popen[bytes]) -> None:
    """Until so many files are committed, or it has ended."""
    deadline_s = time.monotonic() + 120
    while time.monotonic() < deadline_s and process.poll() is None:
        with contextlib.suppress(OSError):
            if len(list((HERE / output).glob("*.jsonl"))) >= n:
                return
        time.sleep(0.1)


def killed(kind: str, name: str, cluster: Any, node: Any) -> dict[str, Any]:
    output = f"{name}-{kind}"
    process = begin(name, output, cluster.address)
    wait_for_commits(output, 4, process)
    hit = 0
    if kind == "node":
        cluster.remove_node(node, allow_graceful=False)
        hit = 1
    elif kind == "driver":
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        hit, left, until_s = 1, [0], time.monotonic() + 20
        while left and time.monotonic() < until_s:
            time.sleep(0.5)
            left = of_kind("tamis-agent", os.getpid()) + of_kind("tamis-worker", os.getpid())
        process = begin(name, output, cluster.address)
        return {**ended(process, output), "hit": hit, "left": len(left)}
    else:
        for pid in of_kind(f"tamis-{kind}", os.getpid())[:1]:
            os.kill(pid, signal.SIGKILL)
            hit += 1
    return {**ended(process, output), "hit": hit}


def main() -> None:
    from ray.cluster_utils import Cluster

    name, kinds = sys.argv[1], sys.argv[2].split("+")
    write_documents()
    local = begin("local", "local", "")
    found: dict[str, Any] = {"local": ended(local, "local")}
    os.environ.update(
        RAY_memory_monitor_refresh_ms="0",
        RAY_health_check_period_ms="500",
        RAY_health_check_failure_threshold="3",
        RAY_MAX_LIMIT_FROM_API_SERVER="40000",
        RAY_MAX_LIMIT_FROM_DATA_SOURCE="40000",
    )
    head = {"num_cpus": 1, "include_dashboard": name == "xenna", "object_store_memory": 80_000_000, "memory": 10**9}
    try:
        cluster = Cluster(initialize_head=True, head_node_args=head)
        other = cluster.add_node(num_cpus=1, object_store_memory=80_000_000, memory=10**9)
    except Exception as exc:
        print(json.dumps({"skip": f"no Ray cluster of two nodes can be started here: {str(exc)[:200]}"}))
        return
    try:
        for kind in kinds:
            found[kind] = killed(kind, name, cluster, other)
        time.sleep(1.0)
        ours = [
            p for c in ("tamis-agent", "tamis-worker", "tamis-server", "tamis-placer") for p in of_kind(c, os.getpid())
        ]
        found["left"] = [name_of(pid) for pid in ours]
    finally:
        cluster.shutdown()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
