"""The budget, shared out: what is spoken for before any work starts, what workers may use, how many there can be."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from tamis.engine.job import Job
from tamis.engine.settings import Record, RunSettings
from tamis.engine.state import MIN_CAP_BYTES
from tamis.errors import BudgetError
from tamis.memory import beside, meter
from tamis.sizes import format_size

USABLE = 0.88  # caps are granted up to here, below the level (90 %) at which the pressure ladder starts to kill
GROWTH_BYTES = 16_000_000  # what the supervisor may still grow by
LIBRARY_BYTES = 24_000_000  # library pages that come back once workers are at work (see memory/pages.py)
# Private pages of a worker before it does anything: its own, and those of the forking server that it writes to and so copies
# (with the collector frozen that is 3 MB of 98, measured over many partitions).
WORKER_OWN_BYTES = 8_000_000
COPIED_SHARE = 0.15
# PSS falls when other processes share the libraries: a number named while they run must still be enough when they are gone.
NAMED_MARGIN = 1.1
GOOD_CAP_BYTES = 64_000_000  # with less, one worker fewer is better


@dataclass(frozen=True)
class Shares:
    fixed_bytes: int  # supervisor and forking server
    worker_bytes: int  # each worker, before it does anything
    pool_bytes: int  # for workers, theirs included
    n_workers: int


def share_budget(
    budget_bytes: int,
    server_pss: int,
    server_anon: int,
    server_peak: int,
    settings: RunSettings,
    record: Record,
    job: Job,
) -> Shares:
    """Raises BudgetError, naming the smallest budget that works, when this one does not."""
    caller = (meter.pss() or 0) + beside.reserved_bytes() if settings.count_caller else 0
    fixed = server_pss + LIBRARY_BYTES + caller + (GROWTH_BYTES if settings.count_caller else 0)
    worker = int(server_anon * COPIED_SHARE) + WORKER_OWN_BYTES
    smallest = max(smallest_budget(fixed, worker), _round_up(caller + server_peak))
    if budget_bytes < smallest:
        raise BudgetError(
            f"a memory budget of {format_size(budget_bytes)} is too small: {format_size(fixed)} go to the supervisor and the "
            f"forking server, {format_size(worker + MIN_CAP_BYTES)} to one worker, and loading takes {format_size(caller + server_peak)} for a moment; "
            f"the smallest that works here is {math.ceil(smallest * NAMED_MARGIN / 1e6)}MB"
        )
    pool = int(budget_bytes * USABLE) - fixed
    cores = len(os.sched_getaffinity(0))
    n = settings.workers or cores
    asked = int(max((s.resources.memory_gb for s in job.segments), default=0.0) * 1e9)
    wanted = max(asked, MIN_CAP_BYTES if settings.workers else GOOD_CAP_BYTES)
    n = count_workers(n, pool, worker, wanted)
    if asked > pool - worker:
        raise BudgetError(
            f"a stage asks for {format_size(asked)} of memory (Resources.memory_gb), one worker can get {format_size(pool - worker)} "
            f"of this budget; the smallest that works is {math.ceil((fixed + worker + asked) / USABLE / 1e6)}MB"
        )
    record.note(
        "smallest budget",
        _round_up(smallest * NAMED_MARGIN),
        "machine",
        "supervisor, forking server and one worker with the least cap",
        {
            "server_pss_bytes": server_pss,
            "server_peak_bytes": server_peak,
            "caller_bytes": caller,
            "margin": NAMED_MARGIN,
        },
    )
    record.note(
        "workers", n, settings.who("workers") if settings.workers == n else "adaptation" if settings.workers else "machine",
        f"{cores} cores; each worker gets {format_size(pool // n - worker)} beyond the {format_size(worker)} it starts with",
        {"cores": cores, "asked": settings.workers, "least_cap_bytes": wanted, "pool_bytes": pool},
    )  # fmt: skip
    return Shares(fixed, worker, pool, n)


def count_workers(wanted: int, pool_bytes: int, worker_bytes: int, least_cap_bytes: int) -> int:
    """As many as wanted, as long as each gets a cap it can work with."""
    n = wanted
    while n > 1 and pool_bytes // n - worker_bytes < least_cap_bytes:
        n -= 1
    return n


def smallest_budget(fixed_bytes: int, worker_bytes: int) -> int:
    return _round_up((fixed_bytes + worker_bytes + MIN_CAP_BYTES) / USABLE)


def _round_up(n_bytes: float) -> int:
    return math.ceil(n_bytes / 1e6) * 1_000_000
