"""A cluster that the program began itself with ray.init(), as the guides show; and one over the nodes of a Slurm job.

One line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.cluster.on_one_node import HERE, filtered, write_documents
from tests.support.run_dirs import run_dir_path

SLURM = """
import json, os, sys
sys.path.insert(0, {tests!r})
from tests.cluster.on_one_node import filtered
from tamis.backends.ray_actor_pool import RayActorPoolExecutor
from tamis.core.client import SlurmRayClient
with SlurmRayClient(num_cpus=1, include_dashboard=False, object_store_memory=80_000_000) as client:
    nodes = client._count_nodes()
    with RayActorPoolExecutor() as executor:
        print(json.dumps({{"content": filtered(executor, "slurm"), "nodes": nodes}}))
"""


def begun() -> dict[str, Any]:
    """On a cluster with less memory than the run asks for, and without a GPU."""
    import ray

    from tamis.backends.ray_actor_pool import RayActorPoolExecutor
    from tamis.backends.ray_cluster.executor import address_of_this_program
    from tamis.observe.series import open_series

    found: dict[str, Any] = {}
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=80_000_000,
        num_gpus=0,
        _memory=800_000_000,
    )
    assert address_of_this_program() == ray.get_runtime_context().gcs_address
    with RayActorPoolExecutor() as executor:
        found["begun"] = filtered(executor, "begun")  # asks for 1 GB
        with open_series(run_dir_path(HERE / "begun")) as series:
            found["node budgets"] = [node.budget_bytes for node in series.nodes()]
        found["gpu"] = refused(executor)
    ray.shutdown()
    return found


def refused(executor: Any) -> str:
    from tamis import Pipeline, Resources
    from tamis.errors import PipelineError
    from tamis.stages.text.io import JsonlReader, JsonlWriter
    from tamis.stages.text.modules import AddId

    on_gpu = AddId(id_field="number").with_(resources=Resources(gpus=1.0))
    try:
        Pipeline("gpu", stages=[JsonlReader("data"), on_gpu, JsonlWriter("gpu")]).run(executor, progress=False)
    except PipelineError as exc:
        return str(exc)
    return "ran"


def slurm() -> dict[str, Any]:
    """Two processes as srun would start them on two nodes."""
    code = SLURM.format(tests=str(Path(__file__).parent))
    processes = []
    for node in range(2):
        environment = {
            **os.environ,
            "SLURM_JOB_ID": "7",
            "SLURM_NODEID": str(node),
            "SLURM_NNODES": "2",
            "SLURM_SUBMIT_DIR": str(HERE),
        }
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
    found |= begun()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
