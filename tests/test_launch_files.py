"""The launch files in examples/: the Slurm script is executed locally, the KubeRay file is parsed and checked."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tamis.cli.main import app

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_slurm_script_does_all_parts_and_submits_the_join(tmp_path: Path) -> None:
    """With a `tamis` and an `sbatch` that write down what they were called with."""
    for name in ("tamis", "sbatch"):
        (tmp_path / name).write_text(f'#!/bin/bash\necho {name} "$@" >> {shlex.quote(str(tmp_path / "calls"))}\n')
        (tmp_path / name).chmod(0o755)
    script = str(EXAMPLES / "slurm-array.sh")

    def task(index: int, *more: str) -> None:
        env = {
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "SLURM_ARRAY_TASK_ID": str(index),
            "SLURM_ARRAY_TASK_MIN": "0",
            "SLURM_ARRAY_TASK_COUNT": "3",
            "SLURM_ARRAY_JOB_ID": "77",
        }
        subprocess.run(["bash", script, "in dir", "out", *more], env=env, check=True, timeout=30)

    for index in range(3):
        task(index)
    task(0, "merge")
    calls = (tmp_path / "calls").read_text().splitlines()
    plain = "dedup fuzzy in dir out --memory 60GB"
    assert calls == [
        f"sbatch --array=0-0 --dependency=afterok:77 {script} in dir out merge",
        *(f"tamis {plain} --shard {i}/3" for i in range(3)),
        f"tamis merge {plain}",
    ]


@pytest.mark.slow
def test_the_slurm_script_runs_for_real(tmp_path: Path) -> None:
    """Two tasks one after the other and the join, with the command itself.

    An exact deduplication of a few documents: fuzzy takes long.
    """
    (tmp_path / "in").mkdir()
    for f in range(2):
        lines = [json.dumps({"text": f"text {i}" * 5}) for i in range(20)]
        (tmp_path / "in" / f"{f}.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "bin").mkdir()
    code = (
        "import sys; from tamis.cli.main import main; sys.argv = [a if a != 'fuzzy' else 'exact' for a in sys.argv]; "
        "main()"
    )
    (tmp_path / "bin" / "tamis").write_text(f'#!/bin/bash\nexec {sys.executable} -c {shlex.quote(code)} "$@" --json\n')
    (tmp_path / "bin" / "sbatch").write_text("#!/bin/bash\n")
    for name in ("tamis", "sbatch"):
        (tmp_path / "bin" / name).chmod(0o755)
    env = {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "TAMIS_MEMORY": "1GB",
        "SLURM_ARRAY_JOB_ID": "1",
    }
    env["PYTHONPATH"] = str(EXAMPLES.parent / "src")
    env["SLURM_ARRAY_TASK_COUNT"] = "2"
    last = ""
    for index, more in ((0, []), (1, []), (0, ["merge"])):
        done = subprocess.run(
            ["bash", str(EXAMPLES / "slurm-array.sh"), str(tmp_path / "in"), str(tmp_path / "out"), *more],
            env={**env, "SLURM_ARRAY_TASK_ID": str(index)},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        last = done.stdout
    assert (json.loads(last)["n_documents"], json.loads(last)["n_duplicates"]) == (40, 20)


def test_the_kuberay_file_is_a_job_that_could_run() -> None:
    job = yaml.safe_load((EXAMPLES / "kuberay-job.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    spec, cluster = job["spec"], job["spec"]["rayClusterSpec"]
    known = {
        "entrypoint",
        "submissionMode",
        "shutdownAfterJobFinishes",
        "ttlSecondsAfterFinished",
        "backoffLimit",
        "activeDeadlineSeconds",
        "rayClusterSpec",
    }
    assert set(spec) <= known
    assert cluster["authOptions"]["mode"] == "token"
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for group in groups:
        (container,) = group["template"]["spec"]["containers"]
        assert container["resources"]["limits"] == container["resources"]["requests"]
        assert all(isinstance(v, str) for v in group["rayStartParams"].values())
        assert container["envFrom"] == [{"secretRef": {"name": "s3-credentials"}}]
    words = shlex.split(spec["entrypoint"])
    assert words[0] == "tamis"
    command = app[words[1]]
    values = command.read(words[2:])  # every option is one that the command has
    assert values["executor"] == "ray"
    node_gib = int(groups[1]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"].removesuffix("Gi"))
    assert int(values["memory"].removesuffix("GB")) * 10**9 < node_gib * 2**30
