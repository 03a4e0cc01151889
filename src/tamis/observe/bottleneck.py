"""Diagnose what held a run back: time of its workers, and causes with the number that proves each and a remedy.

Pure: from what was read of a run (snapshot.py). Figures are those of the newest pass, whose series the run directory
has. A cause is named only where its number exceeds a limit that is given with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tamis.observe.points import LEVELS, Total
from tamis.observe.snapshot import Snapshot
from tamis.sizes import format_size

_LOW_GPU, _LOW_CPU, _HIGH_CPU = 0.5, 0.6, 0.85  # shares of the time
_HIGH_MEMORY = 0.9  # of the budget
_PRESSED = 0.05  # of the moments, in which memory was short
_RETRIED = 0.02  # of the partitions
_RECYCLED = 0.1
_DOMINANT = 0.5  # of the time of all stages
_MIN_S = 5.0  # shorter runs are mostly start and end
_PAUSED_FROM = 2  # level orange: only the end of the pipeline starts


class Bottleneck(NamedTuple):
    """A cause, the number that proves it, and what to change. `weight` orders findings: the largest share of time."""

    cause: str
    proof: str
    remedy: str
    weight: float


class TimeShares(NamedTuple):
    """Time of all workers by activity, in seconds. None: not recorded."""

    computing_s: float
    waiting_s: float  # within stages, for files, devices or other processes
    between_s: float  # between units: starting, reading, writing, idle

    @property
    def all_s(self) -> float:
        return self.computing_s + self.waiting_s + self.between_s


def time_shares(run: Snapshot) -> TimeShares | None:
    """Return where the time of the workers went."""
    wall_s, n_workers = _wall_s(run), _n_workers(run)
    if not wall_s or not run.stages:
        return None
    cpu_s = sum(min(p.cpu_s, p.seconds) for p in run.stages)
    stage_s = sum(p.seconds for p in run.stages)
    return TimeShares(cpu_s, max(stage_s - cpu_s, 0.0), max(wall_s * n_workers - stage_s, 0.0))


def findings(run: Snapshot) -> list[Bottleneck]:
    """Return what held a run back, the most important first."""
    if _wall_s(run) < _MIN_S:
        return []
    bottlenecks = [*_of_gpus(run), *_of_memory(run), *_of_failures(run), *_of_stages(run), *_of_processors(run)]
    return sorted(bottlenecks, key=lambda f: -f.weight)


def _of_gpus(run: Snapshot) -> Iterator[Bottleneck]:
    shares = [p.busy for p in run.gpus if p.busy is not None]
    if shares and (mean := sum(shares) / len(shares)) < _LOW_GPU:
        yield Bottleneck(
            "GPUs waited for work",
            f"they were busy {mean:.0%} of the time",
            "larger batches for the model (model_inference_batch_size, batch_size), or more CPU workers before it",
            1 - mean,
        )


def _of_memory(run: Snapshot) -> Iterator[Bottleneck]:
    paused = [t for t in run.totals if t.level >= _PAUSED_FROM]
    share = len(paused) / len(run.totals) if run.totals else 0.0
    used = run.peak_bytes / run.budget_bytes if run.budget_bytes else 0.0
    if share > _PRESSED:
        yield Bottleneck(
            "memory was short",
            f"in {share:.0%} of the moments the level was {LEVELS[_PAUSED_FROM][0]} or above "
            f"({LEVELS[_PAUSED_FROM][1]}), peak {used:.0%} of {format_size(run.budget_bytes)}",
            "more --memory, fewer --workers, or smaller partitions (--blocksize); for fuzzy deduplication fewer bands",
            share,
        )
    elif used > _HIGH_MEMORY:
        yield Bottleneck(
            "little memory was left",
            f"peak {used:.0%} of {format_size(run.budget_bytes)}; workers did not wait for it",
            "more --memory before larger partitions or more workers",
            0.0,
        )


def _of_failures(run: Snapshot) -> Iterator[Bottleneck]:
    counters = run.manifest.counters if run.manifest is not None else {}
    n_units = max(counters.get("committed", 0), 1)
    n_failed = sum(counters.get(name, 0) for name in ("retries", "crashes"))
    if n_failed / n_units > _RETRIED:
        n_memory = counters.get("memory_failures", 0)
        why = f", {n_memory:,} of them for want of memory" if n_memory else ""
        yield Bottleneck(
            "partitions were done more than once",
            f"{n_failed:,} attempts failed for {n_units:,} partitions{why}",
            "fewer --workers with more memory each, or smaller partitions (--blocksize)"
            if n_memory
            else "see the events below and worker.log for what failed",
            min(n_failed / n_units, 1.0) * 0.5,
        )
    if (n := counters.get("recycled", 0)) / n_units > _RECYCLED:
        yield Bottleneck(
            "workers were replaced",
            f"{n:,} times for {n_units:,} partitions, because they kept memory",
            "the stage that keeps it is named in the events below; a model that must stay needs more --memory",
            min(n / n_units, 1.0) * 0.3,
        )


def _of_stages(run: Snapshot) -> Iterator[Bottleneck]:
    all_s = sum(p.seconds for p in run.stages)
    slowest = max(run.stages, key=lambda p: p.seconds, default=None)
    shares = time_shares(run)
    if slowest is None or shares is None or not all_s or len(run.stages) < 2:
        return
    share = slowest.seconds / all_s
    if share > _DOMINANT and all_s > shares.all_s / 2:
        yield Bottleneck(
            f"stage {slowest.stage} decided the speed",
            f"it took {share:.0%} of the time of all stages, {slowest.seconds:,.1f} s for {slowest.n_in:,} documents",
            "put rules that drop many documents for little time before it, or run it on a GPU if it can",
            share * all_s / shares.all_s,
        )


def _of_processors(run: Snapshot) -> Iterator[Bottleneck]:
    used, n = _cpu_share(run.totals), _n_workers(run)
    if used is None:
        return
    share = used / n
    if share > _HIGH_CPU:
        yield Bottleneck(
            "processors",
            f"{n} workers computed {share:.0%} of the time",
            "more --workers if there are cores left, a machine with more cores, or several machines (--shard)",
            0.2,
        )
    elif share < _LOW_CPU and not any(t.level >= _PAUSED_FROM for t in run.totals) and not run.gpus:
        yield Bottleneck(
            "workers waited for input, output or each other",
            f"{n} workers computed {share:.0%} of the time",
            "input and --scratch on a local disk instead of a network, or more --workers that read at the same time; "
            "of few or very small files there is not enough for all workers",
            1 - share,
        )


def _cpu_share(totals: list[Total]) -> float | None:
    """Return the processors that the run used on average, by its processes' own clocks."""
    known = [t for t in totals if t.cpu_s > 0]
    if len(known) < 2 or known[-1].at <= known[0].at:
        return None
    return (known[-1].cpu_s - known[0].cpu_s) / (known[-1].at - known[0].at)


def _wall_s(run: Snapshot) -> float:
    return run.totals[-1].at - run.totals[0].at if len(run.totals) > 1 else 0.0


def _n_workers(run: Snapshot) -> int:
    return max(run.about.workers, 1)
