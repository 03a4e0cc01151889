"""Descriptors and threads that workers keep: the stage that keeps them, and when a worker is replaced. Pure.

Both are counted after every partition and around every stage (engine/worker/apply.py), so no probe is needed to name
the stage. A process has a fixed number of descriptors; the opening of one more fails with EMFILE. Threads have no such
number, but the stack of each counts against the memory cap of its worker.

Covers counting and deciding. Does not cover what becomes of a unit that failed for want of them: see recovery.py.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import field

from tamis._dataclasses import dataclass
from tamis.engine.messages import Done, StageUse, Vitals
from tamis.engine.schema import EventKind, HandleLeak
from tamis.engine.supervisor.actions import Action, Note
from tamis.engine.supervisor.state import Worker

DESCRIPTORS, THREADS = "file descriptors", "threads"
_COUNTERS = {DESCRIPTORS: "n_descriptors", THREADS: "n_threads"}

_N_IGNORED = 2  # units in which libraries open what they keep: pools of threads, log files, devices
_MIN_PARTITIONS, _MAX_PARTITIONS = 20, 60
_MIN_KEPT = 20
_GAINING_SHARE = 0.2  # of the partitions that a leak is seen in, at least
_STILL_RISING = 0.3  # gain of the newest third, as a share of the mean
_NEAR_SHARE = 0.75  # of the descriptors that a process may have
_SHORT_SHARE = 0.9
_MIN_THREADS, _MAX_THREADS = 8, 64  # gained by a worker since it was warm
_STACK_BYTES = 8 << 20


@dataclass
class _Gains:
    """Growth of one kind of handle in the workers of a segment, by partition and stage."""

    per_partition: deque[int] = field(default_factory=lambda: deque(maxlen=_MAX_PARTITIONS))
    by_stage: Counter[str] = field(default_factory=Counter)

    def add(self, n: int, stages: Sequence[StageUse], counter: str) -> None:
        self.per_partition.append(n)
        for use in stages:
            self.by_stage[use.label] += getattr(use, counter)

    @property
    def mean(self) -> float:
        return sum(self.per_partition) / max(1, len(self.per_partition))

    @property
    def rises(self) -> bool:
        """Return True if partition after partition keeps some, and the newest ones still do."""
        gains = list(self.per_partition)
        if len(gains) < _MIN_PARTITIONS or sum(gains) < _MIN_KEPT:
            return False
        newest = gains[-(len(gains) // 3) :]
        gaining = sum(1 for gain in gains if gain > 0)
        return gaining >= _GAINING_SHARE * len(gains) and sum(newest) / len(newest) >= _STILL_RISING * self.mean

    @property
    def is_over(self) -> bool:
        return (
            len(self.per_partition) == _MAX_PARTITIONS and sum(list(self.per_partition)[-_MAX_PARTITIONS // 2 :]) <= 0
        )

    @property
    def stage(self) -> str:
        """The stage that keeps most of them; "" if it is less than half: then reading or writing does."""
        best, n = max(self.by_stage.items(), key=lambda item: item[1], default=("", 0))
        return best if n > 0 and 2 * n >= sum(n for n in self.by_stage.values() if n > 0) else ""


class Handles:
    """Descriptors and threads of all workers of a run."""

    def __init__(self) -> None:
        self._gains: dict[tuple[int, str], _Gains] = {}  # by segment and kind
        self._warm: dict[int, Vitals] = {}  # by worker: after its first units
        self._before: dict[int, Vitals] = {}  # by worker: after its last unit
        self._open_warnings: dict[tuple[int, str], HandleLeak] = {}
        self._lasts: dict[
            int, int
        ] = {}  # by segment: units after which a worker had no descriptor left, where that happened

    @property
    def leaks(self) -> list[HandleLeak]:
        """Leaks found so far, one entry per segment and kind."""
        return list(self._open_warnings.values())

    def forget_worker(self, worker_id: int) -> None:
        """Forget a worker that ended."""
        self._warm.pop(worker_id, None)
        self._before.pop(worker_id, None)

    def after_unit(self, worker: Worker, report: Done) -> list[Action]:
        """Count what the unit left. A leak is noted once per segment and kind."""
        vitals = report.vitals
        if vitals is None or not vitals.n_descriptors:  # the in-process executor counts none
            return []
        before = self._before.get(worker.id)
        self._before[worker.id] = vitals
        if worker.n_units <= _N_IGNORED or before is None:
            self._warm[worker.id] = vitals
            return []
        notes: list[Action] = []
        for kind, counter in _COUNTERS.items():
            key = worker.segment, kind
            gains = self._gains.setdefault(key, _Gains())
            gains.add(getattr(vitals, counter) - getattr(before, counter), report.stages, counter)
            if key in self._open_warnings:
                if gains.is_over:
                    notes.append(self._clear(key, worker.id))
            elif gains.rises:
                self._open_warnings[key] = warning = _describe(worker, kind, gains, vitals)
                notes.append(Note(EventKind.LEAK, warning["text"], warning))
        return notes

    def ran_out(self, worker: Worker) -> None:
        """Record after how many units a worker had used up its descriptors: the next ones are replaced earlier."""
        if worker.n_units:
            self._lasts[worker.segment] = min(worker.n_units, self._lasts.get(worker.segment, worker.n_units))

    def why_replace(self, worker: Worker, report: Done, used_bytes: int) -> str:
        """Return why a worker should be replaced before it runs out of descriptors or threads; "" if it should not.

        `used_bytes`: what counts against its cap, stacks of threads included.
        """
        vitals = report.vitals
        if vitals is None or not vitals.n_descriptors:
            return ""
        n, limit = vitals.n_descriptors, vitals.max_descriptors
        gains = self._gains.get((worker.segment, DESCRIPTORS), _Gains())
        expected = 2 * max((*gains.per_partition, 0))
        is_near = n + expected >= _NEAR_SHARE * limit and n > self._first(worker.id, "n_descriptors")
        lasts = self._lasts.get(worker.segment)
        if limit and (is_near or (lasts is not None and worker.n_units >= lasts and 2 * n >= limit)):
            return (
                f"{n:,} of its {limit:,} file descriptors are open{_holders(gains, report.stages, 'n_descriptors')}, "
                "and one of the next partitions could "
                "fail with EMFILE (too many open files)"
            )
        gained = vitals.n_threads - self._first(worker.id, "n_threads")
        gains = self._gains.get((worker.segment, THREADS), _Gains())
        stacks = _STACK_BYTES * max((*gains.per_partition, 1))
        if gained >= _MAX_THREADS or (gained >= _MIN_THREADS and used_bytes + stacks > worker.cap_bytes):
            return (
                f"it has {vitals.n_threads:,} threads, {gained:,} more than after its first partitions"
                f"{_holders(gains, report.stages, 'n_threads')}, whose stacks count against its memory"
            )
        return ""

    def _first(self, worker_id: int, counter: str) -> int:
        warm = self._warm.get(worker_id)
        return int(getattr(warm, counter)) if warm is not None else 0

    def _clear(self, key: tuple[int, str], worker_id: int) -> Note:
        warning = self._open_warnings.pop(key)
        text = f"{warning['who']} keeps no more {warning['kind']} than it has: what looked like a leak is over"
        return Note(EventKind.LEAK_OVER, text, {"stage": warning["stage"], "segment": key[0], "worker": worker_id})


def is_short_of_descriptors(vitals: Vitals | None) -> bool:
    """Return True if a worker had hardly any descriptor left after its last unit."""
    return vitals is not None and 0 < _SHORT_SHARE * vitals.max_descriptors <= vitals.n_descriptors


def _holders(gains: _Gains, stages: Sequence[StageUse], counter: str) -> str:
    """Name the stage that keeps them: by earlier partitions, else by the last one alone."""
    if not (stage := gains.stage):
        last = _Gains()
        last.add(0, stages, counter)
        stage = last.stage
    return f" (stage {stage!r} keeps them)" if stage else ""


def _describe(worker: Worker, kind: str, gains: _Gains, vitals: Vitals) -> HandleLeak:
    stage, mean = gains.stage, gains.mean
    source = f"stage {stage!r}" if stage else "a worker while reading or writing"
    n, n_partitions = sum(gains.per_partition), len(gains.per_partition)
    text = f"{source} keeps {mean:.3g} {kind} of every partition: {n:,} over {n_partitions} partitions"
    n_left = None
    if kind == DESCRIPTORS:
        n_left = max(0, int((vitals.max_descriptors - vitals.n_descriptors) / mean))
        text += (
            f"; the {vitals.max_descriptors:,} that worker {worker.id} may open would be used up after {n_left} more "
            "(EMFILE, too many open files); its workers are replaced before that"
        )
    else:
        text += "; its workers are replaced before their stacks fill the memory cap"
    return {
        "text": text,
        "who": source,
        "stage": stage,
        "kind": kind,
        "segment": worker.segment,
        "worker": worker.id,
        "handles_per_partition": round(mean, 3),
        "n_kept": n,
        "n_partitions": n_partitions,
        "partitions_left": n_left,
        "limit": vitals.max_descriptors if kind == DESCRIPTORS else None,
        "proven": True,
    }
