"""Decisions as measured memory nears the budget: five levels, and an action for each. Pure: no I/O, no clock.

Admission (who may reserve how much) rests on reservations and is not here; this ladder answers to *measured* bytes,
that is to whatever escaped the caps. With caps in force red should be rare, so the caller counts it.

level    at     what is decided (each level includes those above it)
green            start workers, grow partitions
yellow   70 %   no new workers, no growth; idle workers trim
orange   80 %   only the most downstream work starts
red      90 %   kill workers until 85 % is reached; victims are retried unchanged, it was not their fault
black    97 %   kill all but one, continue with that one
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from enum import IntEnum
from typing import NamedTuple

from tamis._dataclasses import dataclass


class PressureLevel(IntEnum):
    GREEN = 0
    YELLOW = 1
    ORANGE = 2
    RED = 3
    BLACK = 4


# Whole percentages and integer arithmetic: a limit must not depend on the rounding of 0.9 * budget.
_RISE_PERCENT = {PressureLevel.YELLOW: 70, PressureLevel.ORANGE: 80, PressureLevel.RED: 90, PressureLevel.BLACK: 97}
_HYSTERESIS_PERCENT = 5
_KILL_TO_PERCENT = 85


def _level_at(used_bytes: int, budget_bytes: int, lowered_by: int) -> PressureLevel:
    reached = [
        level for level, percent in _RISE_PERCENT.items() if used_bytes * 100 >= (percent - lowered_by) * budget_bytes
    ]
    return max(reached, default=PressureLevel.GREEN)


class PressureGauge(NamedTuple):
    """The present level. Rises at once, falls only when use is 5 points below the level's threshold."""

    level: PressureLevel = PressureLevel.GREEN

    def after(self, used_bytes: int, budget_bytes: int) -> PressureGauge:
        """Return the pressure after `used_bytes` of `budget_bytes` were measured."""
        risen = _level_at(used_bytes, budget_bytes, 0)
        level = min(self.level, _level_at(used_bytes, budget_bytes, _HYSTERESIS_PERCENT))
        return PressureGauge(max(risen, level))


class WorkerUse(NamedTuple):
    """One worker as the meter and the supervisor see it."""

    id: int
    used_bytes: int
    busy: bool
    progress_s: float = 0.0  # time spent on the present partition: what killing it would lose
    downstream: bool = False  # runs the most downstream segment
    dying: bool = False  # killed already, memory not back yet: counts as freed, or one excess would be paid twice

    @property
    def unfinished_s(self) -> float:
        return self.progress_s if self.busy else 0.0


@dataclass(frozen=True)
class PressureRules:
    allow_new_workers: bool = True
    allow_growth: bool = True
    downstream_only: bool = False
    trim: list[int] = field(default_factory=list)
    kill: list[int] = field(default_factory=list)
    serial: bool = False


def decide(level: PressureLevel, workers: Sequence[WorkerUse], budget_bytes: int, used_bytes: int) -> PressureRules:
    """Return what to do at `level`. `used_bytes` is everything measured, including dying workers."""
    living = [worker for worker in workers if not worker.dying]
    kill: list[int] = []
    if level is PressureLevel.BLACK:
        kill = _all_but_one(living)
    elif level is PressureLevel.RED:
        dying_bytes = sum(worker.used_bytes for worker in workers if worker.dying)
        kill = _enough(living, used_bytes - dying_bytes - budget_bytes * _KILL_TO_PERCENT // 100)
    trim = (
        [worker for worker in living if not worker.busy and worker.id not in kill]
        if level >= PressureLevel.YELLOW
        else []
    )
    return PressureRules(
        allow_new_workers=level is PressureLevel.GREEN,
        allow_growth=level is PressureLevel.GREEN,
        downstream_only=level >= PressureLevel.ORANGE,
        trim=[worker.id for worker in sorted(trim, key=lambda worker: (-worker.used_bytes, worker.id))],
        kill=kill,
        serial=level is PressureLevel.BLACK,
    )


def _all_but_one(living: list[WorkerUse]) -> list[int]:
    """Keep the worker closest to giving results: busy, downstream, furthest on."""
    if not living:
        return []
    largest = max(
        living, key=lambda worker: (worker.busy, worker.downstream, worker.unfinished_s, -worker.used_bytes, -worker.id)
    )
    return [worker.id for worker in living if worker is not largest]


def _enough(living: list[WorkerUse], excess_bytes: int) -> list[int]:
    """Return the workers that lose the least work per byte freed, until `excess_bytes` are covered.

    Never includes the last worker.
    """
    candidates = sorted(
        (worker for worker in living if worker.used_bytes > 0),
        key=lambda worker: (worker.unfinished_s / worker.used_bytes, worker.downstream, -worker.used_bytes, worker.id),
    )
    victims: list[WorkerUse] = []
    missing_bytes = excess_bytes
    for worker in candidates:
        if missing_bytes <= 0 or len(victims) == len(living) - 1:
            break
        victims.append(worker)
        missing_bytes -= worker.used_bytes
    # A late, large victim may have made earlier ones needless: spare those, the most work first.
    for worker in sorted(victims, key=lambda worker: -worker.unfinished_s):
        if missing_bytes + worker.used_bytes <= 0:
            victims.remove(worker)
            missing_bytes += worker.used_bytes
    return [worker.id for worker in victims]
