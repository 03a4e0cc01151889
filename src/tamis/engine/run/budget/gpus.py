"""How the GPUs of this machine are shared out among the segments of a job, and the record of it. Called by run.py before work begins."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from tamis.engine.job import Job
from tamis.engine.run.settings import Record, RunSettings
from tamis.engine.supervisor.devices import gpu_share
from tamis.errors import BudgetError
from tamis.memory.device_limits import CONTEXT_BYTES
from tamis.memory.gpu import device_bytes, device_names
from tamis.sizes import format_size, parse_size


@dataclass(frozen=True)
class GpuShares:
    """`devices`: those that there are. `shares`: what one worker of each segment takes of a device. `limit_bytes`: memory that all
    workers on one device may take together; 0: all of it."""

    devices: list[str] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    limit_bytes: int = 0


def share_gpus(job: Job, settings: RunSettings, record: Record) -> GpuShares:
    """What each segment gets, written down with the reason. BudgetError where --gpu-memory leaves too little for one worker."""
    devices = device_names(os.environ)
    needs = [s.resources for s in job.segments]
    asked = parse_size(settings.gpu_memory) if settings.gpu_memory is not None else 0
    has_gpu_work = bool(devices) and any(r.requires_gpu for r in needs)
    there = device_bytes() if has_gpu_work and (asked or any(r.gpu_memory_gb for r in needs)) else 0
    limit = min(asked, there) if asked and there else asked
    if asked and has_gpu_work:
        _check_room(job, limit)
    shares = [gpu_share(r.gpus, r.gpu_memory_gb, limit or there) for r in needs]
    _note(record, settings, job, GpuShares(devices, shares, limit if has_gpu_work else 0), there)
    return GpuShares(devices, shares, limit if has_gpu_work else 0)


def _check_room(job: Job, limit_bytes: int) -> None:
    for segment in job.segments:
        r = segment.resources
        stages = ", ".join(job.labels[segment.first : segment.last])
        least = max(int(r.gpu_memory_gb * 1e9), int(2 * CONTEXT_BYTES / min(r.gpus, 1.0)) if r.gpus else 0)
        if r.requires_gpu and least > limit_bytes:
            raise BudgetError(
                f"--gpu-memory {format_size(limit_bytes)} is too small for one worker of {stages}, which needs "
                f"{format_size(least)} of a GPU (CUDA itself takes about {format_size(CONTEXT_BYTES)} for each process); give "
                f"--gpu-memory {-(-least // 10**9)}GB or more"
            )


def _note(record: Record, settings: RunSettings, job: Job, found: GpuShares, there_bytes: int) -> None:
    if settings.gpu_memory is not None:
        why = (
            "memory that the workers on one GPU may take together: their parts add up to at most this, and each process refuses itself more"
            if found.limit_bytes
            else "it limits nothing here: there is no GPU, or no stage that uses one"
        )
        facts = {"device_bytes": there_bytes, "devices": list(found.devices)}
        record.note("gpu_memory", found.limit_bytes or None, settings.who("gpu_memory"), why, facts)
    for i, (segment, share) in enumerate(zip(job.segments, found.shares, strict=True)):
        if share:
            stages = job.labels[segment.first : segment.last]
            whole = found.limit_bytes or there_bytes
            record.note(
                f"share_of_gpu of segment {i}", share, settings.chosen_by.get("stages", "user"),
                f"what one worker of {', '.join(stages)} takes of a device: its Resources ask for it",
                {"gpus": segment.resources.gpus, "gpu_memory_gb": segment.resources.gpu_memory_gb, "bytes": int(min(share, 1.0) * whole)},
            )  # fmt: skip
