"""The record of settings when a run starts: each choice about memory, its origin, its reason, and the figures.

What the run changes by itself later is added at its end (outcome.py).
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from tamis.engine.job import Job
from tamis.engine.run.budget.shares import (
    COPIED_SHARE,
    GROWTH_BYTES,
    LIBRARY_BYTES,
    USABLE,
    WORKER_OWN_BYTES,
    BudgetShares,
)
from tamis.engine.run.inputs import Inputs
from tamis.engine.run.settings import RunSettings, SettingsLog
from tamis.engine.supervisor.state import MIN_CAP_BYTES, Config
from tamis.engine.workers_interface import ServerMemory
from tamis.forecast.prediction import Prediction
from tamis.memory.budget import Budget, describe_limits
from tamis.memory.machine import free_bytes
from tamis.memory.predictor import Predictor
from tamis.memory.release import hygiene_env
from tamis.sizes import format_size
from tamis.stores.urls import is_bucket

_BUDGET_BY = {"environment": "environment", "cgroup": "machine", "available": "machine"}
_ALLOCATOR = ("ARROW_DEFAULT_MEMORY_POOL", "MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")


def note_budget(record: SettingsLog, budget: Budget, settings: RunSettings) -> None:
    by = _BUDGET_BY.get(budget.source) or settings.origin("memory")
    limits = describe_limits()
    names = ("mem_total_bytes", "mem_available_bytes", "cgroup_limits", "swap_total_bytes", "n_cores", "enforcement")
    record.note("memory", budget.bytes, by, budget.why, {"source": budget.source, **{k: limits[k] for k in names}})
    counted = "the whole process tree" if settings.count_caller else "the processes that the run starts"
    record.note(
        "counted in the budget",
        counted,
        settings.origin("count_caller") if not settings.count_caller else "default",
        "from the command line this process is part of the run; in a program of yours its own memory is reported but "
        "not counted",
    )


def note_shares(
    record: SettingsLog, settings: RunSettings, shares: BudgetShares, config: Config, job: Job, server: ServerMemory
) -> None:
    """Record how the budget is divided.

    `server`: the measured memory of the forking server.
    """
    server_bytes = {f"server_{name}": getattr(server, name) for name in ("own_bytes", "anon_bytes", "peak_bytes")}
    record.note(
        "fixed memory",
        shares.fixed_bytes,
        "machine",
        "private memory of supervisor and forking server as measured now, library pages in use, and what they may "
        "still grow by",
        {
            **server_bytes,
            "library_reserve_bytes": LIBRARY_BYTES,
            "growth_reserve_bytes": GROWTH_BYTES if settings.count_caller else 0,
        },
    )
    record.note(
        "worker memory at start",
        shares.worker_bytes,
        "machine",
        "pages of its own, and those of the forking server that it copies by writing to them",
        {"own_bytes": WORKER_OWN_BYTES, "copied_share": COPIED_SHARE},
    )
    record.note(
        "pool",
        shares.pool_bytes,
        "default",
        f"for all workers: {USABLE:.0%} of the budget, which is below the level at which workers are ended, less the "
        "fixed memory",
        {"usable_share": USABLE, "budget_bytes": config.budget_bytes},
    )
    cap = shares.pool_bytes // shares.n_workers - shares.worker_bytes
    requested = max((s.resources.memory_gb for s in job.segments), default=0.0)
    record.note(
        "worker cap",
        cap,
        "machine",
        "an equal share of the pool; enforced in the worker (RLIMIT_DATA), and granted only together with a partition",
        {"n_workers": shares.n_workers, "least_cap_bytes": MIN_CAP_BYTES},
    )
    if requested:
        record.note(
            "memory asked by stages",
            int(requested * 1e9),
            settings.chosen_by.get("stages", "user"),
            "the largest Resources.memory_gb: workers are few enough that each gets it",
            {s: j.resources.memory_gb for j in job.segments for s in job.labels[j.first : j.last]},
        )


def note_sizes(
    record: SettingsLog, settings: RunSettings, inputs: Inputs, config: Config, n_segments: int, scratch: str
) -> None:
    """Note the sizes of buffers and queues."""
    if settings.blocksize is not None:
        by = settings.origin("blocksize")
    else:
        by = settings.chosen_by.get("stages", "user") if inputs.partition_bytes else "default"
    why = "upper bound of a partition's decoded bytes; the measured peak may demand less"
    why += ", and so may slow stages" if config.bounded_in_time else ""
    if inputs.files_per_partition:
        n = inputs.files_per_partition
        files = f"{n} whole files each" if n > 1 else "one whole file each"
        why = (
            f"partitions begin as {files}, as asked for, whatever their size; those that do not fit their memory are "
            "cut"
        )
    record.note("blocksize", config.max_partition_bytes, by, why, {"files_per_partition": inputs.files_per_partition})
    record.note(
        "queue",
        config.queue_bytes,
        settings.origin("queue"),
        "bound of the blocks between processes: a feeder waits, and upstream work does not start, while they take more",
        {"segments": n_segments, "mode": config.mode},
    )
    record.note(
        "unsynced output",
        config.unsynced_bytes,
        "default",
        "written and not yet on the disk: beyond this no partition starts, so that dirty pages do not fill the machine",
    )
    record.note(
        "max_record",
        settings.max_record_bytes,
        settings.origin("max_record"),
        "larger records are quarantined without being held; never derived from the budget, so the output does not "
        "depend on it",
    )
    record.note(
        "mode",
        config.mode,
        settings.origin("mode"),
        "streaming: stages of equal needs are fused in one worker; batch: one after the other",
    )
    why = "where blocks between processes lie; memory, if this is a tmpfs"
    if settings.scratch is not None and is_bucket(settings.scratch):
        all_blocks = "all blocks are sent to" if config.mode == "batch" else "keys and tables of deduplications lie in"
        why = f"where what is on its way lies; {all_blocks} {settings.scratch}"
    record.note(
        "scratch",
        scratch,
        settings.origin("scratch"),
        why,
        {} if (free := free_bytes([scratch])) is None else {"free_bytes": free},
    )
    env = hygiene_env(os.environ)
    record.note(
        "allocator",
        {n: env[n] for n in _ALLOCATOR if n in env},
        "environment" if any(n in os.environ for n in _ALLOCATOR) else "default",
        "set before workers start: Arrow's own pools reserve address space and defeat the cap, many arenas keep freed "
        "pages",
    )


def note_models(
    record: SettingsLog, predictors: Sequence[Predictor], from_profile: Sequence[bool], n_runs: int
) -> None:
    for i, (model, is_learned) in enumerate(zip(predictors, from_profile, strict=True)):
        a, b, c = model.coefficients
        record.note(
            f"partition model {i}",
            [a, b, c],
            "machine profile" if is_learned else "default",
            "fitted by earlier runs of this pipeline here"
            if is_learned
            else "a line through what text pipelines usually take; the first partitions are small and correct it",
            {"n_samples": model.n_samples, "factor": round(model.factor, 4), "runs": n_runs},
        )


def note_prediction(record: SettingsLog, prediction: Prediction) -> None:
    peak = prediction["peak_bytes"]
    record.note(
        "predicted peak",
        peak["expected"],
        "machine profile" if prediction["n_runs"] else "default",
        f"between {format_size(peak['low'])} and {format_size(peak['high'])} ({prediction['basis']})",
        {
            "low": peak["low"],
            "high": peak["high"],
            "confidence": prediction["confidence"],
            "n_runs": prediction["n_runs"],
        },
    )
