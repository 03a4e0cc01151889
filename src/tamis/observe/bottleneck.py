"""Diagnose what held a run back: time of its workers, and causes with the number that proves each and a remedy.

Pure: from what was read of a run (snapshot.py). Figures are those of all passes that have ended (`PassWork` of the
record), while none has, those of the newest one by its series. A cause is named only where its number exceeds a limit
that is given with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tamis.engine.run_record import PassRecord, PassWork, StageTime
from tamis.observe.points import LEVELS
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
    """Time of all workers by activity, in seconds."""

    reading_s: float
    computing_s: float
    waiting_s: float  # within stages, for files, devices or other processes
    writing_s: float  # and keeping the books
    idle_s: float  # without a partition: starting, or nothing to do

    @property
    def all_s(self) -> float:
        return sum(self)


class PassTimes(NamedTuple):
    """One pass or decision of a run. `work`: of its workers; decisions have none."""

    title: str
    seconds: float
    work: PassWork | None


def passes_of(run: Snapshot) -> list[PassTimes]:
    """Return the passes of a run of which is known where their time went, and its decisions."""
    passes = run.record.passes if run.record is not None else []
    if any(p.work is not None for p in passes):
        return [PassTimes(p.text, p.seconds, p.work) for p in passes if p.work is not None or _is_decision(p)]
    newest = _newest(run)
    return [] if newest is None else [PassTimes(run.name, newest.seconds, newest)]


def _is_decision(one: PassRecord) -> bool:
    return not one.documents and one.seconds > 0


def _newest(run: Snapshot) -> PassWork | None:
    """Return what the series of the newest pass know; None where they are too few."""
    totals = run.totals
    if len(totals) < 2 or totals[-1].at <= totals[0].at:
        return None
    known = [t.cpu_s for t in totals if t.cpu_s > 0]
    counters = run.manifest.counters if run.manifest is not None else {}
    busy = [p.busy for p in run.gpus if p.busy is not None]
    stages = [StageTime(p.stage, p.seconds, p.cpu_s, p.n_in) for p in run.stages]
    return PassWork(
        workers=max(run.about.workers, 1),
        seconds=totals[-1].at - totals[0].at,
        unit_s=sum(stage.seconds for stage in stages),
        cpu_s=known[-1] - known[0] if known else 0.0,
        stages=stages,
        n_looks=len(totals),
        n_pressed=sum(t.level >= _PAUSED_FROM for t in totals),
        n_units=counters.get("committed", 0),
        n_failed=counters.get("retries", 0) + counters.get("crashes", 0),
        n_short_of_memory=counters.get("memory_failures", 0),
        n_recycled=counters.get("recycled", 0),
        gpu_busy=sum(busy) / len(busy) if busy else None,
    )


def shares_of(work: PassWork, seconds: float) -> TimeShares:
    """Return where the time of the workers of one pass went, which took so long with starting them."""
    computing_s = sum(min(stage.cpu_s, stage.seconds) for stage in work.stages)
    stage_s = sum(stage.seconds for stage in work.stages)
    writing_s = max(work.unit_s - work.reading_s - stage_s, 0.0)
    idle_s = max(max(seconds, work.seconds) * work.workers - max(work.unit_s, stage_s), 0.0)
    return TimeShares(work.reading_s, computing_s, max(stage_s - computing_s, 0.0), writing_s, idle_s)


def time_shares(run: Snapshot) -> TimeShares | None:
    """Return where the time of the workers of all passes went; None: not recorded."""
    shares = [shares_of(p.work, p.seconds) for p in passes_of(run) if p.work is not None and p.work.stages]
    return TimeShares(*map(sum, zip(*shares, strict=True))) if shares else None


def findings(run: Snapshot) -> list[Bottleneck]:
    """Return what held a run back, the most important first."""
    passes = passes_of(run)
    works = [p.work for p in passes if p.work is not None]
    if sum(p.seconds for p in passes) < _MIN_S:
        return []
    bottlenecks = [
        *_of_gpus(works),
        *_of_memory(run, works),
        *_of_failures(works),
        *_of_stages(passes),
        *_of_decisions(passes),
    ]
    return sorted([*bottlenecks, *_of_processors(works)], key=lambda f: -f.weight)


def _of_gpus(works: Sequence[PassWork]) -> Iterator[Bottleneck]:
    used = [(w.gpu_busy, w.seconds) for w in works if w.gpu_busy is not None]
    seconds = sum(s for _, s in used)
    if seconds and (mean := sum(busy * s for busy, s in used) / seconds) < _LOW_GPU:
        yield Bottleneck(
            "GPUs waited for work",
            f"they were busy {mean:.0%} of the time",
            "larger batches for the model (model_inference_batch_size, batch_size), or more CPU workers before it",
            1 - mean,
        )


def _of_memory(run: Snapshot, works: Sequence[PassWork]) -> Iterator[Bottleneck]:
    n_looks = sum(w.n_looks for w in works)
    share = sum(w.n_pressed for w in works) / n_looks if n_looks else 0.0
    peak_bytes = max(run.peak_bytes, run.record.peak_bytes if run.record is not None else 0)
    used = peak_bytes / run.budget_bytes if run.budget_bytes else 0.0
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


def _of_failures(works: Sequence[PassWork]) -> Iterator[Bottleneck]:
    n_units = max(sum(w.n_units for w in works), 1)
    n_failed, n_recycled = sum(w.n_failed for w in works), sum(w.n_recycled for w in works)
    if n_failed / n_units > _RETRIED:
        n_memory = sum(w.n_short_of_memory for w in works)
        why = f", {n_memory:,} of them for want of memory" if n_memory else ""
        yield Bottleneck(
            "partitions were done more than once",
            f"{n_failed:,} attempts failed for {n_units:,} partitions{why}",
            "fewer --workers with more memory each, or smaller partitions (--blocksize)"
            if n_memory
            else "see the events below and worker.log for what failed",
            min(n_failed / n_units, 1.0) * 0.5,
        )
    if n_recycled / n_units > _RECYCLED:
        yield Bottleneck(
            "workers were replaced",
            f"{n_recycled:,} times for {n_units:,} partitions, because they kept memory",
            "the stage that keeps it is named in the events below; a model that must stay needs more --memory",
            min(n_recycled / n_units, 1.0) * 0.3,
        )


def _of_stages(passes: Sequence[PassTimes]) -> Iterator[Bottleneck]:
    """Name a stage that took most of the time of all stages, of whichever pass."""
    times = [(stage, p.title) for p in passes if p.work is not None for stage in p.work.stages]
    stage_s = sum(stage.seconds for stage, _ in times)
    all_s = sum(sum(shares_of(p.work, p.seconds)) for p in passes if p.work is not None)
    if len(times) < 2 or not stage_s:
        return
    slowest, title = max(times, key=lambda t: t[0].seconds)
    share = slowest.seconds / stage_s
    if share > _DOMINANT and stage_s > all_s / 2:
        where = f" of the pass {title}" if len({title for _, title in times}) > 1 else ""
        yield Bottleneck(
            f"stage {slowest.stage} decided the speed",
            f"it took {share:.0%} of the time of all stages, {slowest.seconds:,.1f} s for {slowest.documents:,} "
            f"documents{where}",
            "put rules that drop many documents for little time before it, or run it on a GPU if it can",
            share * stage_s / all_s,
        )


def _of_decisions(passes: Sequence[PassTimes]) -> Iterator[Bottleneck]:
    """Name the decisions between passes, in which one process works, if they took most of the time."""
    all_s = sum(p.seconds for p in passes)
    decisions = [p for p in passes if p.work is None]
    share = sum(p.seconds for p in decisions) / all_s if all_s else 0.0
    if share > _DOMINANT:
        longest = max(decisions, key=lambda p: p.seconds)
        yield Bottleneck(
            "decisions between passes, for which workers wait",
            f"{share:.0%} of the time, the longest {longest.seconds:,.1f} s ({longest.title})",
            "more --memory, so that less is sorted on disk, and --scratch on a local disk; for fuzzy deduplication "
            "fewer bands",
            share,
        )


def _of_processors(works: Sequence[PassWork]) -> Iterator[Bottleneck]:
    known = [w for w in works if w.cpu_s > 0]
    available_s = sum(w.seconds * w.workers for w in known)
    if not available_s:
        return
    share = sum(w.cpu_s for w in known) / available_s
    n = max(w.workers for w in known)
    if share > _HIGH_CPU:
        yield Bottleneck(
            "processors",
            f"{n} workers computed {share:.0%} of the time",
            "more --workers if there are cores left, a machine with more cores, or several machines (--shard)",
            0.2,
        )
    elif share < _LOW_CPU and not any(w.n_pressed or w.gpu_busy is not None for w in works):
        yield Bottleneck(
            "workers waited for input, output or each other",
            f"{n} workers computed {share:.0%} of the time",
            "input and --scratch on a local disk instead of a network, or more --workers that read at the same time; "
            "of few or very small files there is not enough for all workers",
            1 - share,
        )
