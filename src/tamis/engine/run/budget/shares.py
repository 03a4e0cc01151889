"""The budget, shared out: what is spoken for before any work starts, what workers may use, how many there can be.

The smallest budget is one number for the same machine, pipeline and versions: it is computed from private memory of
processes that have loaded everything, which repeats to 0.1 MB, and from constants, never from shares of library pages,
which depend on what else runs on the machine. Budgets count in steps of 5 MB: one is enough from the step on that what
was measured fits into. The number that is named has room for what does not repeat, so that it works in the next run
too; nearly always the two are one, and a byte less is refused.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import NamedTuple

from tamis.engine.job import Job
from tamis.engine.run.settings import RunSettings, SettingsLog
from tamis.engine.supervisor.state import MIN_CAP_BYTES
from tamis.engine.workers_interface import ServerMemory
from tamis.errors import BudgetError
from tamis.memory import counted_processes, meter
from tamis.sizes import format_size

USABLE = 0.88  # caps are granted up to here, below the level (90 %) at which the pressure ladder starts to kill
STEP_BYTES = 5_000_000
SPREAD_BYTES = 500_000  # how far two measurements of the same may be apart; eight in a row were 0.16 MB apart at most
# Measured with the Gopher rules and a copy (30 MB in all), as if no other process used the same libraries: pages that
# the forking server and the workers take back once they are at work (see memory/release.py), and those that only the
# command line uses.
LIBRARY_BYTES = 24_000_000
CALLER_LIBRARY_BYTES = 9_000_000
CALLER_BYTES = 25_000_000  # private memory of the command line, whichever command; it may be more with very many files
GROWTH_BYTES = 4_000_000  # what it may still grow by
# Private pages of a worker before it does anything: its own, and those of the forking server that it writes to and so
# copies (with the collector frozen that is 3 MB of 98, measured over many partitions).
WORKER_OWN_BYTES = 5_000_000
COPIED_SHARE = 0.15
BESIDE_MODEL_BYTES = 400_000_000  # torch and transformers, measured on a CPU, and a worker's partition
LOADING_SPREAD = (
    0.1  # what is allocated and never touched counts in the cap that stages are loaded under (backends/loading_cap.py)
)
GOOD_CAP_BYTES = 64_000_000  # with less, one worker fewer is better


class BudgetShares(NamedTuple):
    fixed_bytes: int  # all but workers: caller, forking server, libraries
    worker_bytes: int  # each worker, before it does anything
    pool_bytes: int  # for workers, theirs included
    n_workers: int
    shared_bytes: int = 0  # what a worker's use may count of pages that others have too

    @property
    def cap_bytes(self) -> int:
        """Bytes that a worker may use beyond those it starts with."""
        return max(0, self.pool_bytes // self.n_workers - self.worker_bytes)


def share_budget(
    budget_bytes: int, server: ServerMemory, settings: RunSettings, record: SettingsLog, job: Job
) -> BudgetShares:
    """Divide the budget; raise BudgetError, naming the smallest budget that works, if this one does not."""
    caller = server.others_bytes
    if settings.count_caller and not caller:
        own = max(CALLER_BYTES, meter.own_bytes() or 0)
        caller = own + CALLER_LIBRARY_BYTES + GROWTH_BYTES + counted_processes.reserved_bytes()
    fixed = caller + server.own_bytes + LIBRARY_BYTES
    worker = int(server.anon_bytes * COPIED_SHARE) + WORKER_OWN_BYTES
    loading = caller + server.peak_bytes
    named = budget_to_name(fixed, worker, loading + int(server.stages_bytes * LOADING_SPREAD))
    if budget_bytes < smallest_budget(fixed, worker, loading):
        raise BudgetError(
            f"a memory budget of {format_size(budget_bytes)} is too small: {format_size(fixed)} go to the supervisor "
            f"and the forking server, {format_size(worker + MIN_CAP_BYTES)} to one worker, and loading takes "
            f"{format_size(loading)} for a moment; "
            f"the smallest that works here is {named // 10**6}MB",
            named,
        )
    cores = server.n_cores or len(os.sched_getaffinity(0))
    shares, least_cap_bytes = share_pool(budget_bytes, fixed, worker, job, settings.workers, cores)
    pool, n, requested = shares.pool_bytes, shares.n_workers, requested_bytes(job)
    if requested > pool - worker:
        needed = math.ceil((fixed + worker + requested) / USABLE / 1e6)
        raise BudgetError(
            f"a stage asks for {format_size(requested)} of memory (Resources.memory_gb), one worker can get "
            f"{format_size(pool - worker)} "
            f"of this budget; the smallest that works is {needed}MB",
            needed * 10**6,
        )
    record.note(
        "smallest budget",
        named,
        "machine",
        "supervisor, forking server and one worker with the least cap",
        {"server_own_bytes": server.own_bytes, "server_peak_bytes": server.peak_bytes, "caller_bytes": caller},
    )
    record.note(
        "workers",
        n,
        settings.origin("workers") if settings.workers == n else "adaptation" if settings.workers else "machine",
        f"{cores} cores; each worker gets {format_size(pool // n - worker)} beyond the {format_size(worker)} it "
        "starts with",
        {"cores": cores, "asked": settings.workers, "least_cap_bytes": least_cap_bytes, "pool_bytes": pool},
    )
    return shares._replace(shared_bytes=server.anon_bytes // 2 + LIBRARY_BYTES)


def refuse_too_large(budget_bytes: int, stages: Sequence[tuple[str, int]]) -> None:
    """Check, before anything is loaded, that the minimum of the stages (name, bytes) fits.

    Measured figures decide later, in `share_budget`.
    """
    least = sum(n for _, n in stages)
    if least <= budget_bytes * USABLE:
        return
    name, n = max(stages, key=lambda s: s[1])
    enough = estimated_budget(least + BESIDE_MODEL_BYTES)
    raise BudgetError(
        f"a memory budget of {format_size(budget_bytes)} is too small: loading stage {name!r} alone takes "
        f"{format_size(n)}; the smallest that may work is {enough // 10**6}MB",
        enough,
    )


def estimated_budget(needed_bytes: int) -> int:
    """Return the budget to name where only a part of the need is known: whole steps, with the share that workers leave.

    >>> estimated_budget(880_000_000)
    1000000000
    """
    return math.ceil(needed_bytes / USABLE / STEP_BYTES) * STEP_BYTES


def share_pool(
    budget_bytes: int, fixed_bytes: int, worker_bytes: int, job: Job, workers: int | None, cores: int
) -> tuple[BudgetShares, int]:
    """Divide the pool among workers; return the shares and the smallest acceptable cap.

    Uses as many workers as requested, or as there are cores, as long as each gets a cap it can work with.
    """
    pool, n = int(budget_bytes * USABLE) - fixed_bytes, workers or cores
    least = max(requested_bytes(job), MIN_CAP_BYTES if workers else GOOD_CAP_BYTES)
    while n > 1 and pool // n - worker_bytes < least:
        n -= 1
    return BudgetShares(fixed_bytes, worker_bytes, pool, n), least


def requested_bytes(job: Job) -> int:
    """Return the memory that the stages of a worker request."""
    return int(max((s.resources.memory_gb for s in job.segments), default=0.0) * 1e9)


def smallest_budget(fixed_bytes: int, worker_bytes: int, loading_bytes: int = 0) -> int:
    """Return the smallest budget in which one worker gets a cap it can work with, and loading fits.

    The result is a whole number of steps.

    >>> smallest_budget(100_000_000, 10_000_000) // 10**6, smallest_budget(0, 0, loading_bytes=149_000_000) // 10**6
    (150, 150)
    """
    needed = max((fixed_bytes + worker_bytes + MIN_CAP_BYTES) / USABLE, loading_bytes)
    return math.ceil(needed / STEP_BYTES) * STEP_BYTES


def budget_to_name(fixed_bytes: int, worker_bytes: int, loading_bytes: int = 0) -> int:
    """Return the smallest budget that is still enough if the same is measured again.

    For messages and plans, which are about the next run.

    >>> [budget_to_name(0, 0, loading_bytes=n) // 10**6 for n in (149_000_000, 149_800_000)]
    [150, 155]
    """
    return smallest_budget(fixed_bytes + SPREAD_BYTES, worker_bytes, loading_bytes + SPREAD_BYTES)
