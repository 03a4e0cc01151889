"""One job from JSONL to JSONL through the product, and what its run database says.

Must run in a process without torch: workers are forked.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpu_parts.jobs import Job
from tamis.stores.run_locations import run_dir_of


def run(job: Job, models: Path, source: Path, output: Path, workers_per_gpu: int | None = None) -> dict[str, Any]:
    """Figures of the run: documents/s once warm and overall, busy share, first output, peak of the host's memory."""
    from tamis.pipeline import Pipeline
    from tamis.stages.text.io.reader import JsonlReader
    from tamis.stages.text.io.writer import JsonlWriter

    shutil.rmtree(output, ignore_errors=True)
    stages = job.stages(models)
    on_gpu = any(s.resources.requires_gpu for s in stages)
    for stage in stages:
        if stage.resources.requires_gpu and workers_per_gpu:
            stage.resources = replace(stage.resources, gpus=1.0 / workers_per_gpu)
    began = time.perf_counter()
    pipeline = Pipeline(
        job.name, stages=[JsonlReader(str(source), blocksize=job.blocksize), *stages, JsonlWriter(str(output))]
    )
    result = pipeline.execute(memory=job.memory)
    seconds = time.perf_counter() - began
    log = Path(run_dir_of(output), "worker.log")
    if log.exists() and (said := log.read_text(errors="replace").strip()):
        print(f"worker.log of {job.name} ends:\n{said[-1500:]}", flush=True)
    return {
        "exit_code": result.exit_code,
        "message": result.message,
        "on_gpu": on_gpu,
        "workers_per_gpu": [round(1 / s.resources.gpus) for s in stages if s.resources.requires_gpu][:1],
        "seconds": round(seconds, 1),
        "host_peak_gb": round(result.peak_bytes / 1e9, 2),
        "budget": job.memory,
        "quarantined": result.ledger.quarantined.n,
        **from_database(Path(run_dir_of(output))),
    }


def from_database(run_dir: Path) -> dict[str, Any]:
    """Read the run database: the rate while workers had the model, and the GPU's share."""
    found: dict[str, Any] = {}
    database = run_dir / "run.sqlite"
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as db:
        about = dict(db.execute("SELECT key, value FROM about"))
        segments = dict(
            db.execute("SELECT worker, max(segment) FROM processes WHERE worker IS NOT NULL GROUP BY worker")
        )
        units = db.execute("SELECT at, worker, n_records, seconds FROM units ORDER BY at").fetchall()
        busy = db.execute("SELECT at, busy FROM gpus WHERE busy IS NOT NULL ORDER BY at").fetchall()
        samples = db.execute("SELECT at, written, queue_bytes FROM samples ORDER BY at").fetchall()
    # Reading and tokenising, the model, writing; without a GPU all in one.
    own = 1 if any(s == 1 for s in segments.values()) else 0
    of_model = [u for u in units if segments.get(u[1]) == own] or units
    found["documents"] = samples[-1][1] if samples else 0
    if len(of_model) > 2:
        firsts: dict[int, float] = {}
        for at, worker, *_ in of_model:
            firsts.setdefault(worker, at)
        middle = of_model[len(of_model) // 2][0]
        # By then every worker has loaded and compiled what it needs.
        first_s = max(at for at in firsts.values() if at <= middle)
        last_s = of_model[-1][0]
        of_model = [u for u in of_model if u[0] > first_s]
        found["documents_per_s"] = round(sum(u[2] for u in of_model) / max(1e-9, last_s - first_s), 1)
        spent = sum(u[3] for u in of_model)
        workers = len({u[1] for u in of_model})
        found["worker_busy"] = round(spent / max(1e-9, last_s - first_s) / max(1, workers), 3)
        inside = [b for at, b in busy if first_s <= at <= last_s]
        if inside:
            found["busy_between_first_and_last_unit"] = round(sum(inside) / len(inside), 4)
    elif of_model:  # so few units that there is nothing behind the first: with warming up
        found["documents_per_s"] = round(sum(u[2] for u in of_model) / max(1e-9, sum(u[3] for u in of_model)), 1)
    found["n_units"] = len(of_model)
    gpu = json.loads(about.get("gpu") or "{}")
    if gpu.get("busy"):
        found["gpu_busy"] = round(sum(gpu["busy"].values()) / len(gpu["busy"]), 4)
    found["out_of_memory"] = gpu.get("out_of_memory", 0)
    found["first_output_s"] = json.loads(about.get("first_output_s") or "null")
    queue = [q or 0 for _, _, q in samples]
    found["queue_mb_mean"] = round(sum(queue) / max(1, len(queue)) / 1e6, 1)
    return found
