"""Division of the GPUs of this machine among the segments of a job, and the record of it.

Called by run.py before work begins.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import field
from typing import NamedTuple

from tamis._dataclasses import dataclass
from tamis.engine.job import Job
from tamis.engine.run.settings import RunSettings, SettingsLog
from tamis.engine.supervisor.devices import gpu_share
from tamis.errors import BudgetError
from tamis.memory.device_limits import CONTEXT_BYTES, LEAST_CONTEXT_BYTES
from tamis.memory.gpu import FreeDeviceMemory, device_names, free_device_memory
from tamis.sizes import format_size, parse_size

_BATCH_BYTES = 200_000_000  # small batches of a small model: with less per worker, one worker fewer is better
_LEAST_BATCH_BYTES = 50_000_000
_MARGIN_BYTES = 50_000_000  # of free memory that is left alone


@dataclass(frozen=True)
class GpuShares:
    """`devices`: those that there are.

    `shares`: what one worker of each segment takes of a device. `limit_bytes`: memory that all workers on one device
    may take together; 0: all of it.
    """

    devices: list[str] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    limit_bytes: int = 0


class GpuNeed(NamedTuple):
    """Device memory of one worker of a segment.

    `least_bytes`: to set up its stages; `good_bytes`: to process batches as well.
    """

    stages: str
    least_bytes: int
    good_bytes: int


def share_gpus(job: Job, settings: RunSettings, record: SettingsLog, is_remote: bool = False) -> GpuShares:
    """Divide the GPUs among the segments and record each share with its reason.

    Raise BudgetError if --gpu-memory, or what other processes leave of a device, is too little for one worker.
    `is_remote`: workers run on other machines, whose devices are not known here.
    """
    devices = device_names(os.environ)
    needs = [s.resources for s in job.segments]
    has_gpu_work = bool(devices) and any(r.requires_gpu for r in needs)
    memory = free_device_memory() if has_gpu_work else FreeDeviceMemory()
    limit = _requested_limit(settings, memory)
    if limit and has_gpu_work:
        _check_room(job, limit)
    usable_bytes = limit or memory.total_bytes
    shares = [gpu_share(r.gpus, r.gpu_memory_gb, usable_bytes) for r in needs]
    if has_gpu_work and memory.is_crowded and not is_remote and memory.free_bytes < usable_bytes:
        limit = max(1, memory.free_bytes - _MARGIN_BYTES)
        shares = fit_shares(shares, [_need(job, i) for i in range(len(needs))], limit, memory)
    result = GpuShares(devices, shares, limit if has_gpu_work else 0)
    _note(record, settings, job, result, memory)
    return result


def _requested_limit(settings: RunSettings, memory: FreeDeviceMemory) -> int:
    """Return --gpu-memory, at most the memory of a device if that is known; 0: no limit."""
    requested = parse_size(settings.gpu_memory) if settings.gpu_memory is not None else 0
    return min(requested, memory.total_bytes) if requested and memory.total_bytes else requested


def fit_shares(
    shares: Sequence[float], needs: Sequence[GpuNeed], limit_bytes: int, memory: FreeDeviceMemory
) -> list[float]:
    """Return shares with which as many workers run on a crowded device as fit, one of each segment at least.

    BudgetError where not even that fits.

    `limit_bytes`: what the workers on one device may take together.
    """
    fitting = []
    for share, need in zip(shares, needs, strict=True):
        if share and need.least_bytes > limit_bytes:
            raise BudgetError(
                f"one worker of {need.stages} needs at least {format_size(need.least_bytes)} of a GPU, and "
                f"{format_size(memory.free_bytes)} of "
                f"{format_size(memory.total_bytes)} are free: other processes hold the rest; end them, use another GPU "
                "(CUDA_VISIBLE_DEVICES), or "
                "run without one (CUDA_VISIBLE_DEVICES=)"
            )
        n_fitting = max(1, int(limit_bytes // max(1, need.good_bytes)))
        fitting.append(share if not share or share >= 1 else max(share, 1 / n_fitting))
    return fitting


def _need(job: Job, index: int) -> GpuNeed:
    """Return the device memory that the stages of a segment need.

    The weights of their models, in half precision at least, or what they request.
    """
    segment = job.segments[index]
    names = ", ".join(job.labels[segment.first : segment.last])
    stages = job.stages[segment.first : segment.last]
    weights = sum(stage.least_bytes() for stage in stages if stage.resources.requires_gpu)
    requested = int(segment.resources.gpu_memory_gb * 1e9)
    least = LEAST_CONTEXT_BYTES + weights // 2 + _LEAST_BATCH_BYTES
    return GpuNeed(names, max(requested, least), max(requested, CONTEXT_BYTES + weights + _BATCH_BYTES))


def _check_room(job: Job, limit_bytes: int) -> None:
    for segment in job.segments:
        r = segment.resources
        stages = ", ".join(job.labels[segment.first : segment.last])
        least = max(int(r.gpu_memory_gb * 1e9), int(2 * CONTEXT_BYTES / min(r.gpus, 1.0)) if r.gpus else 0)
        if r.requires_gpu and least > limit_bytes:
            raise BudgetError(
                f"--gpu-memory {format_size(limit_bytes)} is too small for one worker of {stages}, which needs "
                f"{format_size(least)} of a GPU (CUDA itself takes about {format_size(CONTEXT_BYTES)} for each "
                f"process); give --gpu-memory {-(-least // 10**9)}GB or more"
            )


def _note(record: SettingsLog, settings: RunSettings, job: Job, shares: GpuShares, memory: FreeDeviceMemory) -> None:
    total_bytes = memory.total_bytes
    if settings.gpu_memory is None and shares.limit_bytes:
        why = (
            "memory that is free on the fullest GPU: other processes hold the rest, and as many workers share it as fit"
        )
        record.note(
            "gpu_memory",
            shares.limit_bytes,
            "machine",
            why,
            {"device_bytes": total_bytes, "free_bytes": memory.free_bytes},
        )
    elif settings.gpu_memory is not None:
        why = (
            "memory that the workers on one GPU may take together: their parts add up to at most this, and each "
            "process refuses itself more"
            if shares.limit_bytes
            else "it limits nothing here: there is no GPU, or no stage that uses one"
        )
        facts = {"device_bytes": total_bytes, "devices": list(shares.devices)}
        record.note("gpu_memory", shares.limit_bytes or None, settings.origin("gpu_memory"), why, facts)
    for i, (segment, share) in enumerate(zip(job.segments, shares.shares, strict=True)):
        if share:
            stages = job.labels[segment.first : segment.last]
            limit_bytes = shares.limit_bytes or total_bytes
            record.note(
                f"share_of_gpu of segment {i}",
                share,
                settings.chosen_by.get("stages", "user"),
                f"what one worker of {', '.join(stages)} takes of a device: its Resources ask for it",
                {
                    "gpus": segment.resources.gpus,
                    "gpu_memory_gb": segment.resources.gpu_memory_gb,
                    "bytes": int(min(share, 1.0) * limit_bytes),
                },
            )
