"""A cluster that the program began itself with ray.init(), as the guides show; and one over the nodes of a Slurm job. One line of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from on_one_node import HERE, filtered, write_documents

SLURM = """
import json, os, sys
sys.path.insert(0, {tests!r})
from on_one_node import filtered
from tamis.backends.ray_actor_pool import RayActorPoolExecutor
from tamis.core.client import SlurmRayClient
with SlurmRayClient(num_cpus=1, include_dashboard=False, object_store_memory=80_000_000) as client:
    nodes = client._count_nodes()
    with RayActorPoolExecutor() as executor:
        print(json.dumps({{"content": filtered(executor, "slurm"), "nodes": nodes}}))
"""


def begun() -> str:
    import ray

    from tamis.backends.cluster.executor import begun_here
    from tamis.backends.ray_actor_pool import RayActorPoolExecutor

    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=80_000_000,
        _memory=2_000_000_000,
    )
    assert begun_here() == ray.get_runtime_context().gcs_address
    with RayActorPoolExecutor() as executor:
        found = filtered(executor, "begun")
    ray.shutdown()
    return found


def slurm() -> dict[str, Any]:
    """Two processes as srun would start them on two nodes."""
    code = SLURM.format(tests=str(Path(__file__).parent))
    processes = []
    for node in range(2):
        environment = {
            **os.environ, "SLURM_JOB_ID": "7", "SLURM_NODEID": str(node), "SLURM_NNODES": "2", "SLURM_SUBMIT_DIR": str(HERE),
        }  # fmt: skip
        with open(HERE / f"slurm-{node}.txt", "wb") as out:
            processes.append(
                subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=out, stderr=subprocess.STDOUT)
            )
    codes = [process.wait(250) for process in processes]
    printed = (HERE / "slurm-0.txt").read_text(errors="replace")
    lines = [line for line in printed.splitlines() if line.startswith("{")]
    return {
        "codes": codes,
        **(
            json.loads(lines[-1])
            if lines
            else {"printed": printed[-3000:] + (HERE / "slurm-1.txt").read_text()[-2000:]}
        ),
    }


def main() -> None:
    from tamis import LocalExecutor

    write_documents()
    found: dict[str, Any] = {"local": filtered(LocalExecutor(), "local")}
    found["slurm"] = slurm()
    found["begun"] = begun()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
